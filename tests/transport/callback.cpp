#include <zeropp/transport/callback.hpp>

#include "conformance/shrink_laws.hpp"
#include "conformance/transport_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/on_threads.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/transport/threads.hpp>
#include <zeropp/transport/transport.hpp>

#include <barrier>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::callback_transport;
using zeropp::process_group;

/// A framework whose process groups are threads.
process_group group_of(zeropp::thread_transport threads) {
    const auto inner = std::make_shared<zeropp::thread_transport>(std::move(threads));
    return {.rank = inner->rank(),
            .size = inner->size(),
            .all_gather = [inner](void*, const std::byte* send, std::byte* recv,
                                  std::size_t bytes) { inner->all_gather(zeropp::host{}, send, recv, bytes); },
            .all_to_all = [inner](void*, const std::byte* send, std::byte* recv,
                                  std::size_t bytes) { inner->all_to_all(zeropp::host{}, send, recv, bytes); },
            .split = [inner](std::span<const int> members) { return group_of(inner->split(members)); },
            .broadcast = [inner](void*, const std::byte* send, std::byte* recv, std::size_t bytes,
                                 int roots) { inner->broadcast(zeropp::host{}, send, recv, bytes, roots); },
            .shrink = [inner](std::span<const int> excluded) { return group_of(inner->shrink(excluded).next); }};
}

process_group failing() {
    const auto fails = [](void*, const std::byte*, std::byte*, std::size_t) {
        throw std::runtime_error("the framework's own words");
    };
    return {.rank = 0, .size = 1, .all_gather = fails, .all_to_all = fails, .split = [](std::span<const int>) {
                return failing();
            }};
}

}  // namespace

TEST_CASE("callbacks: a framework's process groups obey the laws of transports", "[transport]") {
    for (const int ranks : {1, 2, 3, 4, 6}) {
        on_threads(ranks, "the laws of transports for callbacks",
                   [](zeropp::thread_transport& base, expectations& expect) {
                       callback_transport world(group_of(base));
                       transport_laws(world, expect);
                   });
    }
}

TEST_CASE("callbacks: what a function throws, the operation or its queue throws", "[transport]") {
    callback_transport world(failing());
    std::vector<std::byte> a(4), b(4);
    const std::string words = "the framework's own words";
    CHECK_THROWS_WITH(world.all_gather(zeropp::host{}, a.data(), b.data(), 4), words);
    CHECK_THROWS_WITH(world.split(std::vector<int>{0}).all_to_all(zeropp::host{}, a.data(), b.data(), 4), words);
    const zeropp::host_queue queue;
    world.all_gather(queue, a.data(), b.data(), 4);
    CHECK_THROWS_WITH(queue.wait(), words);
    // Of nothing there is nothing to call.
    world.all_gather(zeropp::host{}, a.data(), b.data(), 0);
}

TEST_CASE("callbacks: a group without a function for broadcast says so", "[transport]") {
    callback_transport world(failing());
    CHECK_FALSE(zeropp::can_broadcast<zeropp::host>(world));
    std::byte a{};
    CHECK_THROWS_WITH(world.broadcast(zeropp::host{}, &a, &a, 1, 1),
                      "broadcast: expected a transport that can broadcast, given one that cannot");
    process_group group = failing();
    group.broadcast = [](void*, const std::byte*, std::byte*, std::size_t, int) { throw std::runtime_error("called"); };
    callback_transport other(group);
    CHECK(zeropp::can_broadcast<zeropp::host>(other));
    CHECK_THROWS_WITH(other.broadcast(zeropp::host{}, &a, &a, 1, 1), "called");
    other.broadcast(zeropp::host{}, nullptr, nullptr, 0, 1);
}

TEST_CASE("callbacks: a framework's group of survivors obeys the laws of shrinking", "[transport][shrink]") {
    std::barrier living(4);
    on_threads(4, "the laws of shrinking for callbacks", [&](zeropp::thread_transport& base, expectations& expect) {
        callback_transport world(group_of(base));
        shrink_laws(world, living, expect);
    });
}

TEST_CASE("callbacks: a group that cannot shrink, or returns another group, is an error", "[transport][shrink]") {
    process_group group = failing();
    const std::vector<int> none;
    CHECK_THROWS_WITH(callback_transport(group).shrink(none),
                      "callback_transport: expected a group with a function for shrink, given one without");
    group.size = 3;
    group.shrink = [&](std::span<const int>) { return group; };
    CHECK_THROWS_WITH(callback_transport(group).shrink(std::vector<int>{2}),
                      "callback_transport: expected a group in which this is rank 0 of 2, given 0 of 3");
}

TEST_CASE("callbacks: a group that cannot be one is refused", "[transport]") {
    process_group group = failing();
    group.rank = 1;
    CHECK_THROWS_WITH(callback_transport(group), "callback_transport: expected a rank from 0 to 0, given 1");
    group = failing();
    group.split = nullptr;
    CHECK_THROWS_WITH(callback_transport(group), "callback_transport: expected functions for all_gather, all_to_all "
                                                 "and split, given a group without one of them");
}
