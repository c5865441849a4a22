/// \file
/// The contract of hierarchical_quantized_reduce_scatter beyond its bits: exact sums and means, placement, workspace,
/// errors, NaN.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/transport/checked.hpp>

using namespace collective_test;
using zeropp::host;

namespace {

constexpr zeropp::block_integer<8, 256> int8;
constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;
constexpr zeropp::cast_to<float> fp32;

using results_by_rank = std::vector<std::vector<float>>;

/// Reduces fulls[r] of rank r with a workspace of its own.
template <class IntraNode, class InterNode>
results_by_rank reduce(const node_map& map, const results_by_rank& fulls, const IntraNode& intra_node,
                       const InterNode& inter_node, const zeropp::reduce_options& options) {
    results_by_rank results(fulls.size());
    on_ranks(map.ranks(), "reduce-scatter on " + map.name, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(map.topology(), transport);
        const auto r = at(comm.rank());
        results[r] = reference::slice_of(fulls[r], fulls.size(), r);  // of the right size
        std::vector<float>& shard = results[r];
        zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{intra_node, inter_node}, fulls[r],
                                                      shard, options);
    });
    return results;
}

}  // namespace

TEST_CASE("reduce-scatter: each rank ends with exactly its own slice of the sum, and the mean divides by all ranks") {
    for (const node_map& map : node_maps()) {
        const int ranks = map.ranks();
        const std::size_t n = 2 * 120;  // divides, for every map
        // Small integers: element i on rank r is 24 * i + 12 * r, so that sums and means are integers and say where
        // they come from.
        results_by_rank fulls(at(ranks), std::vector<float>(n));
        for (std::size_t r = 0; r != fulls.size(); ++r) {
            for (std::size_t i = 0; i != n; ++i) fulls[r][i] = static_cast<float>(24 * i + 12 * r);
        }
        const results_by_rank sums = reduce(map, fulls, fp32, fp32, {.operation = zeropp::reduction::sum});
        const results_by_rank means =
            reduce(map, fulls, fp32, fp32, {.operation = zeropp::reduction::mean, .chunks = 2});
        const std::size_t slice = n / at(ranks);
        for (std::size_t r = 0; r != fulls.size(); ++r) {
            INFO(map.name << ", rank " << r);
            std::vector<float> sum, mean;
            for (std::size_t i = r * slice; i != (r + 1) * slice; ++i) {
                sum.push_back(static_cast<float>(ranks) * static_cast<float>(24 * i) +
                              static_cast<float>(6 * ranks * (ranks - 1)));
                mean.push_back(static_cast<float>(24 * i) + static_cast<float>(6 * (ranks - 1)));
            }
            REQUIRE(difference(sums[r], sum) == "");
            REQUIRE(difference(means[r], mean) == "");
        }
    }
}

TEST_CASE("reduce-scatter: wrong arguments throw on every rank and nothing is written") {
    const zeropp::two_level nodes(2, 2);
    const std::size_t n = 1000;
    const std::size_t bytes =
        zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(nodes, zeropp::hops{int8, int4}, n);
    struct call {
        std::string wrong;
        std::size_t shard = 250;
        std::size_t scratch_less = 0;
        std::size_t shift = 0;
        int chunks = 1;
    };
    const std::vector<call> calls{
        {.wrong =
             "expected a workspace of at least " + std::to_string(bytes) + " bytes, given " + std::to_string(bytes - 1),
         .scratch_less = 1},
        {.wrong = "expected a workspace aligned to 16 bytes, given one that starts 4 bytes past a boundary",
         .shift = 4},
        {.wrong = "expected a shard of 250 elements of 1000, given one of 249", .shard = 249},
        {.wrong = "expected a shard of 250 elements of 1000, given one of 1000", .shard = 1000},
        {.wrong = "expected at least 1 chunk, given 0", .chunks = 0},
        {.wrong = "expected at least 1 chunk, given -3", .chunks = -3}};
    for (const call& c : calls) {
        std::vector<char> untouched(4);
        const auto errors = errors_on_ranks(4, "reduce-scatter that throws", [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(nodes, transport);
            guarded<float> shard(c.shard);
            guarded<std::byte> scratch(bytes - c.scratch_less, c.shift);
            try {
                zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{int8, int4},
                                                              std::vector<float>(n), shard.view(), {.chunks = c.chunks},
                                                              scratch.view());
            } catch (...) {
                untouched[at(comm.rank())] = shard.untouched() && scratch.untouched();
                throw;
            }
        });
        for (std::size_t r = 0; r != 4; ++r) {
            REQUIRE(errors[r] == "hierarchical_quantized_reduce_scatter: " + c.wrong);
            REQUIRE(untouched[r]);
        }
    }
}

TEST_CASE("reduce-scatter: a shard that overlaps full anywhere but at its own slice throws") {
    // Where in a larger array the shards of two ranks begin, full being elements [30, 70) and slices 20 long.
    struct placement {
        std::size_t rank_0;
        std::size_t rank_1;
        bool good;
    };
    const std::vector<placement> placements{{10, 10, true},  {70, 70, true},  {30, 50, true},  {10, 50, true},
                                            {11, 50, false}, {29, 50, false}, {31, 50, false}, {50, 50, false},
                                            {30, 69, false}, {30, 49, false}, {30, 51, false}, {50, 30, false}};
    for (const placement& p : placements) {
        INFO("shards at " << p.rank_0 << " and " << p.rank_1);
        const auto errors = errors_on_ranks(2, "overlap", [&](zeropp::thread_transport& transport) {
            // A misplaced shard is one rank's own mistake, so the ranks have to tell each other.
            zeropp::communicator comm(zeropp::two_level(1, 2), zeropp::checked(transport));
            std::vector<float> memory(100);
            const auto full = std::span<float>(memory).subspan(30, 40);
            const auto shard = std::span<float>(memory).subspan(comm.rank() == 0 ? p.rank_0 : p.rank_1, 20);
            zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{int8, int4}, full, shard);
        });
        REQUIRE(errors[0].empty() == p.good);
        REQUIRE(errors[0] == errors[1]);
        if (!p.good) REQUIRE(errors[0].find("overlaps elsewhere") != std::string::npos);
    }
}

TEST_CASE("reduce-scatter: NaN and Inf reach the elements that share a block with them, and no others") {
    const std::size_t n = 4 * 700;
    const node_map& map = node_maps()[2];
    results_by_rank fulls = gradients<float>(4, n, 3);
    const results_by_rank clean = reduce(map, fulls, int8, int4, {});
    // In the slice of rank 1, blocks of 256: elements [256, 512) on the hop with larger blocks, whole blocks of the
    // other hop.
    fulls[2][700 + 300] = zeropp::quiet_nan;
    // In the slice of rank 3: the tail [512, 700).
    fulls[0][2100 + 699] = -INFINITY;
    const results_by_rank larger_first = reduce(map, fulls, int8, int4, {.chunks = 2});
    const results_by_rank larger_second = reduce(map, fulls, int4, int8, {.operation = zeropp::reduction::mean});
    // Lossless messages keep NaN to its element.
    const results_by_rank lossless = reduce(map, fulls, fp32, fp32, {});
    for (std::size_t r = 0; r != 4; ++r) {
        for (std::size_t i = 0; i != 700; ++i) {
            INFO("rank " << r << ", element " << i);
            const bool affected = (r == 1 && i >= 256 && i < 512) || (r == 3 && i >= 512);
            if (std::isnan(larger_first[r][i]) != affected) FAIL("is " << larger_first[r][i]);
            if (std::isnan(larger_second[r][i]) != affected) FAIL("is " << larger_second[r][i]);
            if (!affected && difference({larger_first[r][i]}, {clean[r][i]}) != "") FAIL("has changed");
            if (std::isnan(lossless[r][i]) != (r == 1 && i == 300)) FAIL("is " << lossless[r][i]);
            if (std::isinf(lossless[r][i]) != (r == 3 && i == 699)) FAIL("is " << lossless[r][i]);
        }
    }
}

TEST_CASE("reduce-scatter: a sum beyond the element's range is Inf, never a wrong number") {
    // 4 * 40000 is beyond half. The mean is not, and must not overflow on the way.
    std::vector<std::vector<float>> sums(4), means(4);
    on_ranks(4, "reduce-scatter of large halves", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const std::vector<zeropp::half> full(8, zeropp::half(40000.0f));
        std::vector<zeropp::half> shard(2);
        zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{fp32, fp32}, full, shard);
        sums[at(comm.rank())] = widened(shard.data(), 2);
        zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{fp32, fp32}, full, shard,
                                                      {.operation = zeropp::reduction::mean});
        means[at(comm.rank())] = widened(shard.data(), 2);
    });
    for (std::size_t r = 0; r != 4; ++r) {
        REQUIRE(difference(sums[r], {INFINITY, INFINITY}) == "");
        REQUIRE(difference(means[r], {40000.0f, 40000.0f}) == "");
    }
}
