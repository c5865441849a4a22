#include <zeropp/transport/checked.hpp>

#include "conformance/counting_laws.hpp"
#include "conformance/decorators.hpp"
#include "conformance/error_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/hostile_peer.hpp"
#include "support/on_threads.hpp"
#include "support/watchdog.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/counting.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::checked;
using zeropp::counting;
using zeropp::thread_transport;
using zeropp::two_level;

template <class Decorator>
void compares_calls_under() {
    for (const int ranks : {1, 2, 3, 4}) {
        on_threads(ranks, "comparing calls", [](thread_transport& base, expectations& expect) {
            auto world = Decorator::wrap(base);
            compares_calls(world, expect);
            compares_calls_in_splits(world, expect);
        });
    }
}

}  // namespace

TEST_CASE("checked throws the same text on every rank where calls differ", "[transport][checked]") {
    SECTION("checked") { compares_calls_under<checking>(); }
    SECTION("counting<checked>") { compares_calls_under<both<counted, checking>>(); }
}

TEST_CASE("checked compares through a transport of another type", "[transport][checked]") {
    on_threads(3, "checked with its own control", [](thread_transport& base, expectations& expect) {
        counting data(base, zeropp::flat(3));
        checked<counting<thread_transport, zeropp::flat>, thread_transport> world(
            data, base.split(std::vector<int>{0, 1, 2}));
        compares_calls(world, expect);
        expect(traffic_of(data, "checked").calls == 0, "nothing of the comparison in the data's totals");
        compares_calls_in_splits(world, expect);
    });
}

TEST_CASE("checked leaves out quantizer and options where there are none", "[transport][checked]") {
    on_threads(2, "calls without quantizer and options", [](thread_transport& base, expectations& expect) {
        checked world(base);
        zeropp::collective_call call = a_call();
        call.quantizer = call.options = {};
        call.elements = static_cast<std::uint64_t>(world.rank());
        expect.equal(thrown<zeropp::precondition_error>([&] { zeropp::begin_collective(world, call, ""); }),
                     "checked: expected the same call on every rank, given gather of 0 elements of fp32 on rank 0; "
                     "gather of 1 elements of fp32 on rank 1");
    });
}

TEST_CASE("a collective that checked stops has moved no data and can be called again", "[transport][checked]") {
    on_threads(4, "a collective with one wrong rank", [](thread_transport& base, expectations& expect) {
        using quantizer = zeropp::cast_to<float>;
        zeropp::communicator comm(two_level(2, 2), counting(checked(base), two_level(2, 2)));
        const auto rank = static_cast<std::size_t>(comm.rank());
        std::vector<float> shard(3, static_cast<float>(rank));
        std::vector<float> full(12, -1.0f);
        const std::vector<float> untouched = full;
        const auto gather = [&](std::vector<float>& in, std::vector<float>& out) {
            return thrown<zeropp::precondition_error>(
                [&] { zeropp::quantized_all_gather(zeropp::host(), comm, quantizer(), in, out); });
        };
        // Rank 3's tensor is larger than the others'.
        std::vector<float> other(16, -1.0f);
        std::vector<float> other_shard(4);
        const std::string differs = rank == 3 ? gather(other_shard, other) : gather(shard, full);
        expect(differs.find("given quantized_all_gather of 12 elements") != std::string::npos,
               "the call, given " + differs);
        expect(differs.find("quantized_all_gather of 16 elements of fp32 with fp32 on rank 3") != std::string::npos,
               "rank 3's call, given " + differs);
        // Rank 1's shard is too small, which the others cannot know.
        std::vector<float> short_shard(2);
        const std::string problem = rank == 1 ? gather(short_shard, full) : gather(shard, full);
        expect.equal(problem, "quantized_all_gather: on rank 1, expected a shard of 3 elements of 12, given one of 2");
        expect(full == untouched && other == std::vector<float>(16, -1.0f), "no data to move");
        equals(comm.world().total(), 0, 0, 0, expect);
        same_on_every_rank(comm.world(), differs + problem, expect);
        expect.equal(gather(shard, full), "<nothing thrown>");
        expect(full == std::vector<float>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}, "the gathered tensor");
    });
}

TEST_CASE("checked is released with the others when a rank fails", "[transport][checked]") {
    const watchdog guard(std::chrono::seconds(120), "a rank that fails under checked");
    std::string released;
    const auto run = [&] {
        zeropp::run_on_threads(2, [&](thread_transport& base) {
            checked world(base);
            if (world.rank() == 0) throw zeropp::error("gone");
            released = thrown<zeropp::peer_error>([&] { zeropp::begin_collective(world, a_call(), ""); });
        });
    };
    CHECK(thrown<zeropp::error>(run) == "gone");
    CHECK(released == "rank 0 failed: gone");
}

TEST_CASE("checked compares the whole of long names", "[transport][checked]") {
    on_threads(2, "long names", [](thread_transport& base, expectations& expect) {
        checked world(base);
        // The longest names of three hops have 108 characters; a user's may have more than any text holds.
        for (const std::size_t length : {108u, 5000u}) {
            std::string name(length, 'x');
            const auto begin = [&] {
                world.begin({"quantized_all_reduce", 100, "fp32", std::string_view(name), std::string_view(name)}, {});
            };
            begin();
            name.back() = base.rank() == 0 ? 'a' : 'b';
            const std::string said = thrown<zeropp::precondition_error>(begin);
            expect(said.find("the same call on every rank") != std::string::npos, said);
        }
    });
}

TEST_CASE("checked takes any bytes of a peer for its call", "[transport][checked]") {
    for (const unsigned byte : {0x00u, 0x01u, 0x5fu, 0x60u, 0x78u, 0xffu}) {
        checked<hostile_peer> world(hostile_peer{{std::byte(byte)}});
        const std::string said = thrown<zeropp::precondition_error>(
            [&] { world.begin({"quantized_all_gather", 100, "fp32", "int8:256", {}}, {}); });
        // At most the problem and the name of the primitive, whole.
        CHECK(said.size() < 512);
        CHECK(said.find(byte == 0 ? "the same call on every rank" : ": on rank 1, ") != std::string::npos);
    }
}
