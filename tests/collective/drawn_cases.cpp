/// \file
/// The collectives and the transport under them on drawn cases: any size, any numbering of nodes, any chunks, arrays
/// anywhere in memory and in each other, against the reference. A failure prints its case, whose number is the seed:
/// the same on every machine.

#include "collective/drawn_case.hpp"
#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

using namespace collective_test;
using zeropp::host;
using zeropp::host_queue;

namespace {

constexpr zeropp::block_integer<8, 64> int8;
constexpr zeropp::block_integer<4, 32> int4;
constexpr zeropp::cast_to<float> fp32;
constexpr zeropp::cast_to<zeropp::half> fp16;
constexpr zeropp::block_integer<2, 8> int2;
constexpr zeropp::block_integer<5, 128, zeropp::asymmetric, zeropp::bfloat16> int5;

constexpr int cases = 120;

/// An all-gather whose shard is its slice of the tensor, or anywhere else in it, or apart from it.
template <class T, class Execution, class Q>
void check_drawn_gather(int seed, const Q& q) {
    drawn_case drawn(seed);
    const std::size_t n = drawn.n;
    const auto ranks = at(drawn.map.ranks());
    const std::size_t placement = drawn.random.below(3);
    const std::size_t shift = drawn.shift<T>();
    const std::size_t shard_shift = drawn.shift<T>();
    const std::uint64_t anywhere = drawn.random.next();
    INFO(drawn.text() << ", placement " << placement << ", shifts " << shift << " and " << shard_shift);
    const std::vector<float> tensor = tensor_of(n, format_of<T>, at(seed));
    std::vector<std::vector<float>> results(ranks);
    std::vector<char> intact(ranks);
    on_ranks(drawn.map.ranks(), drawn.text(), [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(drawn.map.topology(), transport);
        const auto r = at(comm.rank());
        const auto own = narrowed<T>(reference::slice_of(tensor, ranks, r));
        const zeropp::gather_options options{.chunks = drawn.chunks};
        guarded<T> full(n, shift);
        guarded<T> apart(own.size(), shard_shift);
        const std::size_t intra_node =
            placement == 0 ? zeropp::partition(n, comm.size()).offset(comm.rank()) : anywhere % (n - own.size() + 1);
        T* const shard = placement == 2 ? apart.data() : full.data() + intra_node;
        if (!own.empty()) std::memcpy(shard, own.data(), own.size() * sizeof(T));
        guarded<std::byte> scratch(zeropp::quantized_all_gather_workspace_bytes(comm.topology(), q, n, options));
        const Execution first, second;
        zeropp::quantized_all_gather(zeropp::pipeline<Execution>{first, second}, comm, q,
                                     zeropp::host_view<T>(shard, own.size()), full.view(), options, scratch.view());
        first.wait();
        results[r] = full.values();
        intact[r] = full.intact() && apart.intact() && scratch.intact();
    });
    const std::vector<float> expected = reference::gathered(tensor, ranks, described(q), format_of<T>);
    for (std::size_t r = 0; r != ranks; ++r) {
        INFO("rank " << r);
        REQUIRE(difference(results[r], expected) == "");
        REQUIRE(intact[r]);
    }
}

/// A reduce-scatter whose shard is its slice of the tensor, or apart from it.
template <class T, class Execution, class IntraNode, class InterNode>
void check_drawn_reduction(int seed, const IntraNode& intra_node, const InterNode& inter_node) {
    drawn_case drawn(seed);
    const std::size_t n = drawn.n;
    const auto ranks = at(drawn.map.ranks());
    const bool in_place = drawn.random.below(2) == 0;
    const std::size_t shift = drawn.shift<T>();
    const std::size_t shard_shift = drawn.shift<T>();
    const zeropp::reduce_options options{drawn.random.below(2) == 0 ? zeropp::reduction::sum : zeropp::reduction::mean,
                                         drawn.chunks, drawn.random.below(2) == 0};
    INFO(drawn.text() << ", " << options.text(options.chunks).str() << (in_place ? ", in place" : "") << ", shifts "
                      << shift << " and " << shard_shift);
    std::vector<std::vector<float>> fulls;
    for (std::size_t r = 0; r != ranks; ++r) fulls.push_back(tensor_of(n, format_of<T>, at(seed) * 64 + r));
    const std::vector<float> before = tensor_of(n, format_of<T>, 7);
    std::vector<std::vector<float>> results(ranks);
    std::vector<char> intact(ranks);
    on_ranks(drawn.map.ranks(), drawn.text(), [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(drawn.map.topology(), transport);
        const auto r = at(comm.rank());
        const zeropp::partition part(n, comm.size());
        guarded<T> full(n, shift);
        full.fill(narrowed<T>(fulls[r]));
        guarded<T> apart(part.size(comm.rank()), shard_shift);
        apart.fill(narrowed<T>(reference::slice_of(before, ranks, r)));
        const zeropp::host_view<T> shard =
            in_place ? full.view().subview(part.offset(comm.rank()), part.size(comm.rank())) : apart.view();
        guarded<std::byte> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
            comm.topology(), zeropp::hops{intra_node, inter_node}, n, options));
        const Execution first, second;
        zeropp::hierarchical_quantized_reduce_scatter(zeropp::pipeline<Execution>{first, second}, comm,
                                                      zeropp::hops{intra_node, inter_node}, full.view(), shard, options,
                                                      scratch.view());
        first.wait();
        results[r] = widened(shard.data(), shard.size());
        std::vector<float> elsewhere = full.values();
        for (std::size_t i = 0; in_place && i != shard.size(); ++i) {
            elsewhere[part.offset(comm.rank()) + i] = fulls[r][part.offset(comm.rank()) + i];
        }
        intact[r] = full.intact() && apart.intact() && scratch.intact() && difference(elsewhere, fulls[r]).empty();
    });
    for (std::size_t r = 0; r != ranks; ++r) {
        INFO("rank " << r);
        const std::vector<float> held = reference::slice_of(in_place ? fulls[r] : before, ranks, r);
        const std::vector<float> expected =
            reference::reduce_scattered(drawn.map.node_of_rank, fulls, r, described(intra_node), described(inter_node),
                                        options.operation == zeropp::reduction::mean,
                                        options.accumulate ? held : std::vector<float>(), format_of<T>);
        REQUIRE(difference(results[r], expected) == "");
        REQUIRE(intact[r]);
    }
}

/// What was gathered and stored, from inside the node.
template <class T, class Q>
void check_drawn_secondary(int seed, const Q& q) {
    drawn_case drawn(seed);
    const std::size_t n = drawn.n;
    const auto ranks = at(drawn.map.ranks());
    const std::size_t shift = drawn.shift<T>();
    INFO(drawn.text() << ", shift " << shift);
    const std::vector<float> tensor = tensor_of(n, format_of<T>, at(seed));
    std::vector<std::vector<float>> results(ranks);
    std::vector<char> intact(ranks);
    on_ranks(drawn.map.ranks(), drawn.text(), [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(drawn.map.topology(), transport);
        const auto r = at(comm.rank());
        const int k = comm.group_size();
        using secondary_type = zeropp::secondary_partition<Q, zeropp::host_space>;
        guarded<std::byte> storage(secondary_type::storage_bytes(q, n, k));
        secondary_type secondary(q, n, k, comm.index(), storage.view());
        guarded<T> full(n, shift);
        full.fill(narrowed<T>(tensor));
        secondary.store(host(), full.view(), 3);
        guarded<std::byte> scratch(zeropp::secondary_partition_gather_workspace_bytes(k, q, n));
        zeropp::secondary_partition_gather(host(), comm, secondary, 3, full.view(), scratch.view());
        results[r] = full.values();
        intact[r] = full.intact() && storage.intact() && scratch.intact();
    });
    const zeropp::two_level nodes = drawn.map.topology();
    for (std::size_t r = 0; r != ranks; ++r) {
        INFO("rank " << r);
        const int k = nodes.group_size(nodes.group_of(static_cast<int>(r)));
        const std::vector<float> expected = reference::gathered(tensor, at(k), described(q), format_of<T>);
        REQUIRE(difference(results[r], expected) == "");
        REQUIRE(intact[r]);
    }
}

/// Messages of any size at any address.
void check_drawn_exchange(int seed) {
    drawn_case drawn(seed);
    const auto ranks = at(drawn.map.ranks());
    const std::size_t bytes = drawn.n;
    const std::size_t shifts[] = {drawn.random.below(16), drawn.random.below(16), drawn.random.below(16)};
    const bool in_place = drawn.random.below(2) == 0;
    INFO(drawn.text() << ", shifts " << shifts[0] << ", " << shifts[1] << ", " << shifts[2]);
    const auto byte_of = [](std::size_t from, std::size_t to, std::size_t i) {
        return static_cast<std::byte>(from * 31 + to * 101 + i * 7 + i / 251);
    };
    std::vector<char> right(ranks);
    on_ranks(drawn.map.ranks(), drawn.text(), [&](zeropp::thread_transport& transport) {
        const auto r = at(transport.rank());
        guarded<std::byte> send(ranks * bytes, shifts[0]), received(ranks * bytes, shifts[1]),
            gathered(ranks * bytes, shifts[2]);
        for (std::size_t to = 0; to != ranks; ++to) {
            for (std::size_t i = 0; i != bytes; ++i) send.data()[to * bytes + i] = byte_of(r, to, i);
        }
        std::byte* const own = in_place ? gathered.data() + r * bytes : send.data();
        for (std::size_t i = 0; in_place && i != bytes; ++i) own[i] = byte_of(r, 0, i);
        transport.all_to_all(host(), send.data(), received.data(), bytes);
        transport.all_gather(host(), own, gathered.data(), bytes);
        bool same = send.intact() && received.intact() && gathered.intact();
        for (std::size_t from = 0; from != ranks; ++from) {
            for (std::size_t i = 0; i != bytes; ++i) {
                same = same && received.data()[from * bytes + i] == byte_of(from, r, i) &&
                       gathered.data()[from * bytes + i] == byte_of(from, 0, i);
            }
        }
        right[r] = same;
    });
    REQUIRE(right == std::vector<char>(ranks, true));
}

}  // namespace

TEST_CASE("drawn cases: every all-gather is the reference's", "[collective][property]") {
    for (int seed = 0; seed != cases; ++seed) {
        check_drawn_gather<float, host_queue>(seed, int8);
        check_drawn_gather<float24, host>(seed + 1000, int4);
        check_drawn_gather<float, host>(seed + 2000, fp32);
        check_drawn_gather<zeropp::half, host_queue>(seed + 9000, fp16);
        check_drawn_gather<zeropp::bfloat16, host>(seed + 10000, int5);
    }
}

TEST_CASE("drawn cases: every reduce-scatter is the reference's", "[collective][property]") {
    for (int seed = 0; seed != cases; ++seed) {
        check_drawn_reduction<float, host_queue>(seed + 3000, int8, int4);
        check_drawn_reduction<float24, host>(seed + 4000, int4, fp32);
        check_drawn_reduction<zeropp::half, host_queue>(seed + 11000, int2, int5);
    }
}

TEST_CASE("drawn cases: every gather from secondary partitions is the reference's", "[collective][property]") {
    for (int seed = 0; seed != cases; ++seed) {
        check_drawn_secondary<float>(seed + 5000, int8);
        check_drawn_secondary<float24>(seed + 6000, int4);
        check_drawn_secondary<float>(seed + 7000, fp32);
    }
}

TEST_CASE("drawn cases: every message arrives", "[collective][property]") {
    for (int seed = 0; seed != cases; ++seed) check_drawn_exchange(seed + 8000);
}
