#include <zeropp/transport/checksummed.hpp>

#include "conformance/checksum_laws.hpp"
#include "conformance/counting_laws.hpp"
#include "conformance/decorators.hpp"
#include "conformance/delivery_laws.hpp"
#include "conformance/error_laws.hpp"
#include "conformance/shrink_laws.hpp"
#include "conformance/split_laws.hpp"
#include "conformance/transport_laws.hpp"
#include "conformance/watching.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/hostile_peer.hpp"
#include "support/on_threads.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/counting.hpp>

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::checksummed;
using zeropp::host;
using zeropp::host_queue;
using zeropp::integrity_error;
using zeropp::thread_transport;
using zeropp::two_level;

}  // namespace

TEST_CASE("checksummed transports obey the laws of transports", "[transport][checksummed]") {
    for (const int ranks : {1, 2, 3, 4}) {
        on_threads(ranks, "the laws of transports for checksummed", [](thread_transport& base, expectations& expect) {
            checksummed world(base);
            transport_laws(world, expect);
        });
    }
    std::barrier living(4);
    on_threads(4, "the laws of shrinking for checksummed", [&](thread_transport& base, expectations& expect) {
        checksummed world(base);
        shrink_laws(world, living, expect);
    });
    on_threads(4, "checked<checksummed>", [](thread_transport& base, expectations& expect) {
        auto world = both<checking, checksumming>::wrap(base);
        compares_calls(world, expect);
    });
    on_threads(4, "checksummed<checked>", [](thread_transport& base, expectations& expect) {
        auto world = both<checksumming, checking>::wrap(base);
        compares_calls(world, expect);
    });
}

TEST_CASE("checksummed transports pass on what those inside have to hear of", "[transport][checksummed]") {
    passes_on("checksummed", [](watching w) { return checksummed<watching>(w); });
    passes_on("each around another", [](watching w) {
        return zeropp::checked(checksummed(zeropp::counting(zeropp::any_transport<host>(w), zeropp::flat(1))));
    });
}

TEST_CASE("a flipped bit is the same error on every rank, with source and destination", "[transport][checksummed]") {
    for (const int ranks : {2, 3}) {
        on_threads(ranks, "flipped bits", [](thread_transport& base, expectations& expect) {
            names_source_and_destination<host>(base, expect);
            names_source_and_destination<host_queue>(base, expect);
        });
    }
}

TEST_CASE("an integrity_error says which ranks it is about", "[transport][checksummed]") {
    on_threads(4, "the ranks of an error", [](thread_transport& base, expectations& expect) {
        checksummed world(meddling(base, flip(of_data, 2, 1)));
        try {
            gather_24_bytes(host(), world);
            expect(false, "an error");
        } catch (const integrity_error& e) {
            expect.equal(e.source(), 2);
            expect.equal(e.destination(), 1);
        }
    });
}

TEST_CASE("each rank's first changed message is named", "[transport][checksummed]") {
    on_threads(4, "several changed messages", [](thread_transport& base, expectations& expect) {
        checksummed world(meddling(base, [](const arrival& a) {
            if (a.operation != of_data || a.rank % 2 == 0) return;
            for (int r = 0; r != a.ranks; ++r) *a.from(r) ^= std::byte{4};
        }));
        expect.equal(without_checksums(seen<host>(world, expect, gather_24_bytes)),
                     "all_gather of 24 bytes: " + changed(0, 1) + "; " + changed(0, 3));
    });
}

TEST_CASE("a changed verdict is an error where it arrives", "[transport][checksummed]") {
    on_threads(3, "a changed verdict", [](thread_transport& base, expectations& expect) {
        for (const std::size_t bit : std::vector<std::size_t>{0, 63, 64, 191, 255}) {
            checksummed world(meddling(base, flip(of_verdicts, 2, 0, bit)));
            const std::string text = seen<host>(world, expect, gather_24_bytes);
            expect.equal(without_checksums(text),
                         world.rank() == 0 ? "all_gather of 24 bytes: expected the verdict of rank 2 to rank "
                                             "0 to have checksum, given one of"
                                           : "<nothing thrown>");
        }
    });
}

TEST_CASE("an older message with its own checksum is noticed", "[transport][checksummed]") {
    on_threads(3, "a message that arrives twice", [](thread_transport& base, expectations& expect) {
        // Rank 1 gets from rank 2, in the second gather, what it got in the first, and the checksum of that.
        std::vector<std::byte> kept[all_of_them];
        checksummed world(meddling(base, [&](const arrival& a) {
            if (a.rank != 1 || a.operation % all_of_them == of_verdicts) return;
            std::vector<std::byte>& message = kept[a.operation % all_of_them];
            if (a.operation < all_of_them) message.assign(a.from(2), a.from(2) + a.bytes);
            if (a.operation / all_of_them == 1) std::copy(message.begin(), message.end(), a.from(2));
        }));
        // The same contents twice: nothing but the operation's number tells them apart.
        gather_24_bytes(host(), world);
        expect.equal(without_checksums(seen<host>(world, expect, gather_24_bytes)),
                     "all_gather of 24 bytes: " + changed(2, 1));
    });
}

TEST_CASE("messages that change places with their checksums are noticed", "[transport][checksummed]") {
    on_threads(3, "messages in each other's place", [](thread_transport& base, expectations& expect) {
        checksummed world(meddling(base, [&](const arrival& a) {
            if (a.rank == 2 && a.operation < of_verdicts) std::swap_ranges(a.from(0), a.from(0) + a.bytes, a.from(1));
        }));
        expect.equal(without_checksums(seen<host>(world, expect, gather_24_bytes)),
                     "all_gather of 24 bytes: " + changed(0, 2));
    });
}

TEST_CASE("in splits, ranks have the world's numbers, and other splits go on", "[transport][checksummed]") {
    on_threads(6, "a flipped bit in a split", [](thread_transport& base, expectations& expect) {
        // Rows of three, backwards: {2, 1, 0} and {5, 4, 3}; and of them what is left without the last: {1, 2}, {4, 5}.
        // In both splits, what rank 4 sends to rank 5 changes.
        checksummed world(meddling(base, [rank = base.rank()](const arrival& a) {
            if (a.ranks == 6 || a.operation != of_data || rank != 5) return;
            for (int r = 0; r != a.ranks; ++r) {
                if (*a.from(r) == std::byte{4}) *a.from(r) ^= std::byte{16};
            }
        }));
        const auto gather = [&](checksummed<meddling<thread_transport>>& part) {
            std::vector<std::byte> all(static_cast<std::size_t>(part.size()), static_cast<std::byte>(world.rank()));
            return without_checksums(
                thrown<integrity_error>([&] { part.all_gather(host(), all.data() + part.rank(), all.data(), 1); }));
        };
        const int first = world.rank() / 3 * 3;
        const std::string expected = first == 3 ? "all_gather of 1 bytes: " + changed(4, 5) : "<nothing thrown>";
        checksummed row = world.split(std::vector<int>{first + 2, first + 1, first});
        expect.equal(gather(row), expected);
        if (row.rank() == 2) {
            row.split(std::vector<int>{2});
        } else {
            checksummed nested = row.split(std::vector<int>{1, 0});
            expect.equal(gather(nested), expected);
        }
        connects(world, world.rank(), {0, 1, 2, 3, 4, 5}, expect);
    });
}

TEST_CASE("collectives under checksums have the same results, and their names in errors", "[transport][checksummed]") {
    constexpr std::size_t n = 1003;
    const zeropp::block_integer<8, 64> int8;
    const zeropp::block_integer<4, 64> int4;
    const two_level nodes(2, 2);
    on_threads(4, "collectives", [&](thread_transport& base, expectations& expect) {
        std::vector<float> tensor(n);
        for (std::size_t i = 0; i != n; ++i) tensor[i] = static_cast<float>(i % 97) - static_cast<float>(base.rank());
        std::vector<float> shard(zeropp::partition(n, 4).size(base.rank()));
        const auto reduce_and_gather = [&](auto comm, const auto& exec) {
            std::vector<float> full(n);
            zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{int8, int4}, tensor, shard,
                                                          {.chunks = 3});
            zeropp::quantized_all_gather(exec, comm, int8, shard, full);
            return full;
        };
        const std::vector<float> expected = reduce_and_gather(zeropp::communicator(nodes, base), host());
        expect(reduce_and_gather(zeropp::communicator(nodes, checksummed(base)), host()) == expected,
               "the same bits with checksums");
        expect(reduce_and_gather(zeropp::communicator(nodes, checksummed(base)), host_queue()) == expected,
               "the same bits with checksums on a queue");

        // In the gather across, which is the first, a bit of what rank 1 sends to rank 3 changes.
        zeropp::communicator comm(nodes, checksummed(meddling(base, [rank = base.rank()](const arrival& a) {
                                      if (rank == 3 && a.operation == of_data) *a.from(0) ^= std::byte{1};
                                  })));
        std::vector<float> full(n);
        const auto gather = [&] { zeropp::quantized_all_gather(host(), comm, int8, shard, full); };
        if (base.rank() % 2 == 1) {
            expect.equal(without_checksums(thrown<integrity_error>(gather)),
                         "quantized_all_gather: all_gather of 272 bytes: " + changed(1, 3));
            base.abort("its counterparts have failed");
        } else {
            // Their own hop across was good; inside, they meet ranks that are gone.
            expect.equal(thrown<zeropp::peer_error>(gather), "its counterparts have failed");
        }
    });
}

TEST_CASE("a flipped bit in a difference leaves weights that nobody takes for up to date", "[transport][checksummed]") {
    constexpr std::size_t n = 1003;
    const zeropp::block_integer<4, 64> int4;
    const two_level nodes(2, 2);
    on_threads(4, "differences", [&](thread_transport& base, expectations& expect) {
        // The first call moves whole weights, in data, checksums and verdicts.
        constexpr auto of_difference = 3 + of_data;
        zeropp::communicator comm(nodes, checksummed(meddling(base, [rank = base.rank()](const arrival& a) {
                                      if (rank == 3 && a.operation == of_difference) *a.from(0) ^= std::byte{1};
                                  })));
        using replica_type = zeropp::secondary_replica<zeropp::cast_to<float>, zeropp::host_space>;
        zeropp::workspace<zeropp::host_space> storage(replica_type::storage_bytes(nodes, n));
        replica_type replica(nodes, base.rank(), n, storage.view());
        std::vector<float> shard(zeropp::partition(n, 4).size(base.rank()), 1.0f);
        zeropp::quantized_update(host(), comm, int4, shard, replica.to(1));
        shard.assign(shard.size(), 1.5f);
        const auto update = [&] { zeropp::quantized_update(host(), comm, int4, shard, replica.to(2)); };
        if (base.rank() % 2 == 1) {
            expect.equal(without_checksums(thrown<integrity_error>(update)),
                         "quantized_update: all_gather of " + std::to_string(zeropp::wire_bytes(int4, 251)) +
                             " bytes: " + changed(1, 3));
            expect(!replica.version());
        } else {
            update();
            expect(replica.version() == 2u);
        }
    });
}

TEST_CASE("what checksums add is counted inside, and not around them", "[transport][checksummed]") {
    on_threads(4, "counting with checksums", [](thread_transport& base, expectations& expect) {
        const two_level nodes(2, 2);
        zeropp::counting intra_node(base, nodes);
        checksummed world(intra_node);
        zeropp::counting around(world, nodes);
        gathers<host>(around, expect, 100);
        exchanges<host_queue>(around, expect, 11);
        equals(around.total(), 0, 111, 2 * 111, expect);
        constexpr std::size_t added = 2 * checksummed<thread_transport>::overhead_bytes;
        equals(intra_node.total(), 0, 111 + added, 2 * (111 + added), expect);
        // Where nothing travels, nothing is added.
        gathers<host>(around, expect, 0);
        checksummed alone = world.split(std::vector<int>{world.rank()});
        gathers<host>(alone, expect, 100);
        equals(intra_node.total(), 0, 111 + added, 2 * (111 + added), expect);
    });
}

TEST_CASE("checksums belong to ranks and operations that all ranks agree on", "[transport][checksummed]") {
    on_threads(3, "an operation that differs", [](thread_transport& base, expectations& expect) {
        // The error is the inner transport's, and leaves the ranks at the same operation.
        checksummed world(base);
        std::vector<std::byte> memory(100);
        const std::string text = thrown<zeropp::precondition_error>(
            [&] { world.all_gather(host(), memory.data() + 90, memory.data(), world.rank() == 1 ? 5 : 6); });
        expect(text.find("all_gather of 5 bytes on rank 1") != std::string::npos, "the difference, given " + text);
        gathers<host>(world, expect, 9);
        checksummed copy = world;
        gathers<host>(copy, expect, 9);
        gathers<host>(world, expect, 9);
    });
}

TEST_CASE("a verdict about a rank that there is not is the peer's fault, with a seal or without",
          "[transport][checksummed]") {
    for (const std::int64_t source : {std::int64_t{2}, std::int64_t{-2}, std::int64_t{1} << 40}) {
        // As rank 1 would seal it for operation 0.
        const std::uint64_t sealed[] = {0, 1, static_cast<std::uint64_t>(source), 5, 6};
        const std::uint64_t verdict[] = {sealed[2], 5, 6, XXH3_64bits(sealed, sizeof sealed)};
        hostile_peer peer{std::vector<std::byte>(sizeof verdict)};
        std::memcpy(peer.bytes.data(), verdict, sizeof verdict);
        checksummed<hostile_peer> world(peer);
        const std::byte send[8]{};
        std::byte recv[16];
        const std::string said =
            thrown<zeropp::integrity_error>([&] { world.all_gather(host{}, send, recv, sizeof send); });
        CHECK(said.find("expected the verdict of rank 1 to rank 0") != std::string::npos);
    }
}
