#include "simt/collectives.hpp"
#include "simt/device.hpp"
#include "support/catch.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/transport/callback.hpp>
#include <zeropp/transport/staged.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace simt = zeropp_test::simt;

namespace {

/// Threads that know nothing of the device, under `staged`.
simt::any_transport staged_threads(const zeropp::thread_transport& world) {
    return simt::any_transport(zeropp::staged<zeropp::thread_transport>(world));
}

}  // namespace

TEST_CASE("collectives on the device: gathers through a host transport", "[simt][collectives]") {
    simt::check_all_gathers(staged_threads);
}

TEST_CASE("collectives on the device: reduce-scatter through a host transport", "[simt][collectives]") {
    simt::check_reduce_scatters(staged_threads);
}

TEST_CASE("collectives on the device: all-reduce of lists through a host transport", "[simt][collectives]") {
    simt::check_all_reduces(staged_threads);
}

TEST_CASE("collectives on the device: updates of lists through a host transport", "[simt][collectives]") {
    simt::check_updates(staged_threads);
}

TEST_CASE("collectives on the device: two and three levels through a host transport", "[simt][collectives]") {
    simt::check_levels(staged_threads);
}

TEST_CASE("staged: the next operation, on another stream, waits for the pinned buffer", "[simt][collectives]") {
    std::vector<std::vector<int>> first(2);
    std::vector<std::vector<int>> second(2);
    zeropp::run_on_threads(2, [&](zeropp::thread_transport& world) {
        zeropp::staged<zeropp::thread_transport> transport(world);
        const int rank = transport.rank();
        const simt::owned_stream one;
        const simt::owned_stream two;
        const simt::device_array<int> send(std::vector<int>{rank + 1, 10 * (rank + 1)});
        const simt::device_array<int> gathered(4);
        const simt::device_array<int> exchanged(2);
        const auto bytes_of = [](const simt::device_array<int>& a) { return reinterpret_cast<std::byte*>(a.data()); };
        transport.all_gather(one.exec(), bytes_of(send), bytes_of(gathered), 8);
        transport.all_to_all(two.exec(), bytes_of(send), bytes_of(exchanged), 4);
        one.exec().wait();
        two.exec().wait();
        first[static_cast<std::size_t>(rank)] = gathered.read();
        second[static_cast<std::size_t>(rank)] = exchanged.read();
    });
    CHECK(first == std::vector<std::vector<int>>(2, {1, 10, 2, 20}));
    CHECK(second == std::vector<std::vector<int>>{{1, 2}, {10, 20}});
}

TEST_CASE("staged: pinned buffers outlive the copies from them", "[simt][collectives]") {
    const simt::owned_stream stream;
    const simt::device_array<int> send(std::vector<int>{7});
    const simt::device_array<int> received(1);
    const auto gather = [&](zeropp::staged<zeropp::thread_transport>& transport) {
        transport.all_gather(stream.exec(), reinterpret_cast<std::byte*>(send.data()),
                             reinterpret_cast<std::byte*>(received.data()), sizeof(int));
    };
    zeropp::run_on_threads(1, [&](zeropp::thread_transport& world) {
        zeropp::staged<zeropp::thread_transport> first(world), second(world);
        gather(first);
        CHECK(simt::pending(stream.native()) != 0);
        first = std::move(second);
        CHECK(simt::pending(stream.native()) == 0);
        gather(first);
    });
    CHECK(simt::pending(stream.native()) == 0);
    CHECK(received.read() == std::vector<int>{7});
}

TEST_CASE("staged: a transport that has failed may still use the pinned buffers", "[simt][collectives][errors]") {
    const simt::owned_stream stream;
    const simt::device_array<int> numbers(2);
    const auto bytes = reinterpret_cast<std::byte*>(numbers.data());
    const auto gather = [&](auto& transport, std::size_t size) {
        transport.all_gather(stream.exec(), bytes, bytes, size);
        stream.exec().wait();
    };
    const std::size_t pinned = simt::live().pinned_blocks;
    {
        bool fails = false;
        const auto move = [&](void*, const std::byte*, std::byte*, std::size_t) {
            if (fails) throw zeropp::error("timeout");
        };
        const auto split = [](std::span<const int>) -> zeropp::process_group { return {}; };
        zeropp::staged transport(zeropp::callback_transport({0, 1, move, move, split}));
        gather(transport, sizeof(int));
        fails = true;
        CHECK_THROWS_WITH(gather(transport, sizeof(int)), "timeout");
        CHECK_THROWS_WITH(gather(transport, 2 * sizeof(int)), "timeout");
    }
    CHECK(simt::live().pinned_blocks == pinned + 4);
}
