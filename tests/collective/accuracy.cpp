/// \file
/// What is left of a gradient's sum: the error of whole reduce-scatters against sums in double.

#include "collective/ranks.hpp"
#include "support/catch.hpp"
#include "support/samples.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/quantizer/stochastic.hpp>
#include <zeropp/topology/three_level.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace {

using namespace collective_test;
using zeropp::block_integer;
using zeropp_test::random_source;

enum class tails { light, heavy };

/// Gaussian numbers, or those of Student's t(3).
std::vector<float> tensor(tails kind, std::size_t n, std::uint64_t seed) {
    random_source random(seed);
    std::vector<float> values(n);
    for (float& x : values) x = static_cast<float>(kind == tails::light ? random.normal() : random.student_t3());
    return values;
}

/// ||given - expected|| / ||expected||
double relative_error(const std::vector<double>& given, const std::vector<double>& expected) {
    double signal = 0;
    double noise = 0;
    for (std::size_t i = 0; i != expected.size(); ++i) {
        signal += expected[i] * expected[i];
        noise += (given[i] - expected[i]) * (given[i] - expected[i]);
    }
    return std::sqrt(noise / signal);
}

/// One sum over nodes x nodes ranks.
template <class IntraNode, class InterNode>
double error_of_sum(tails kind, int nodes, const IntraNode& intra_node, const InterNode& inter_node) {
    const int ranks = nodes * nodes;
    std::vector<std::vector<float>> full;
    std::vector<double> expected(at(ranks) * 1024);
    for (int r = 0; r != ranks; ++r) {
        full.push_back(tensor(kind, expected.size(), 7 + 1000 * static_cast<std::uint64_t>(r)));
        for (std::size_t i = 0; i != expected.size(); ++i) expected[i] += static_cast<double>(full.back()[i]);
    }
    std::vector<double> given(expected.size());
    on_ranks(ranks, "a sum", [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(nodes, nodes), transport);
        std::vector<float> shard(1024);
        zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{intra_node, inter_node},
                                                      full[at(comm.rank())], shard);
        for (std::size_t i = 0; i != shard.size(); ++i)
            given[at(comm.rank()) * shard.size() + i] = static_cast<double>(shard[i]);
    });
    return relative_error(given, expected);
}

using int4 = block_integer<4, 128>;

/// No feedback: the same call without a memory.
template <class Q>
struct nothing_kept {
    nothing_kept(const zeropp::two_level&, std::size_t) {}

    template <class Comm>
    void reduce(Comm& comm, const std::vector<float>& full, std::vector<float>& shard) {
        zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{Q{}, Q{}}, full, shard);
    }
};

template <class Q, class Storage>
class losses_kept {
public:
    losses_kept(const zeropp::two_level& nodes, std::size_t n)
        : storage_(memory::storage_bytes(nodes, n)), memory_(nodes, n, storage_.view()) {}

    template <class Comm>
    void reduce(Comm& comm, const std::vector<float>& full, std::vector<float>& shard) {
        zeropp::hierarchical_quantized_reduce_scatter(
            zeropp::host{}, comm, zeropp::with_error_feedback(zeropp::hops{Q{}, Q{}}, memory_), full, shard);
    }

private:
    using memory = zeropp::error_feedback<zeropp::hops<Q, Q>, Storage, zeropp::host_space>;
    zeropp::workspace<zeropp::host_space> storage_;
    memory memory_;
};

/// The sum of all results of 256 steps over 2 x 2 ranks. A gradient is the same in every step but for noise, a tenth of
/// its deviation.
template <class Method>
double error_of_steps(tails kind) {
    constexpr std::size_t slice = 2048;
    const zeropp::two_level nodes(2, 2);
    std::vector<std::vector<double>> of_rank(4, std::vector<double>(4 * slice));
    std::vector<double> given(4 * slice);
    on_ranks(4, "256 steps", [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(nodes, transport);
        Method method(nodes, 4 * slice);
        const auto seed = static_cast<std::uint64_t>(comm.rank());
        const std::vector<float> same = tensor(kind, 4 * slice, 3 + seed);
        random_source noise(91 + seed);
        const double deviation = kind == tails::light ? 0.1 : 0.1 * std::sqrt(3.0);
        std::vector<float> full(same.size());
        std::vector<float> shard(slice);
        for (int step = 0; step != 256; ++step) {
            for (std::size_t i = 0; i != full.size(); ++i) {
                full[i] = same[i] + static_cast<float>(deviation * noise.normal());
                of_rank[at(comm.rank())][i] += static_cast<double>(full[i]);
            }
            method.reduce(comm, full, shard);
            for (std::size_t i = 0; i != slice; ++i) {
                given[at(comm.rank()) * slice + i] += static_cast<double>(shard[i]);
            }
        }
    });
    std::vector<double> expected(4 * slice);
    for (const auto& sums : of_rank) {
        for (std::size_t i = 0; i != expected.size(); ++i) expected[i] += sums[i];
    }
    return relative_error(given, expected);
}

/// Simulated beforehand: .0011.
template <class Q>
void check_feedback(tails kind) {
    CAPTURE(kind);
    // That it is the feedback that helps.
    CHECK(error_of_steps<nothing_kept<Q>>(kind) > 0.011);
    CHECK(error_of_steps<losses_kept<Q, zeropp::residuals_in_fp32>>(kind) <= 0.0011);
    CHECK(error_of_steps<losses_kept<Q, zeropp::residuals_in_int8>>(kind) <= 0.0011);
}

}  // namespace

TEST_CASE("sums over 8 x 8 ranks with INT8 inside and INT4 across", "[collective][accuracy]") {
    using int8_rotated = zeropp::hadamard<block_integer<8, 512>>;
    // Simulated beforehand, in double: .118 on both.
    using int4_rotated = zeropp::hadamard<int4>;
    for (const tails kind : {tails::light, tails::heavy}) {
        CAPTURE(kind);
        CHECK(error_of_sum(kind, 8, int8_rotated{}, int4_rotated{}) <= 0.118);
    }
}

TEST_CASE("256 steps of INT4 with error feedback", "[collective][accuracy]") { check_feedback<int4>(tails::light); }

TEST_CASE("256 steps of rotated INT4 with error feedback", "[collective][accuracy]") {
    check_feedback<zeropp::hadamard<int4>>(tails::heavy);
}

TEST_CASE("values that are rounded at random several times in a step are right on average", "[collective][accuracy]") {
    using q4 = zeropp::stochastic<block_integer<4, 128>>;
    using q2 = zeropp::stochastic<block_integer<2, 128>>;
    using fp32 = zeropp::cast_to<float>;
    using replica_type = zeropp::secondary_replica<fp32, zeropp::host_space, q2>;
    using secondary_type = zeropp::secondary_partition<q2, zeropp::host_space>;
    constexpr std::size_t n = 4 * 128;
    constexpr std::uint64_t steps = 60;
    // Small numbers in blocks of large steps.
    std::vector<float> full(n);
    for (std::size_t i = 0; i != n; ++i) full[i] = i % 128 == 0 ? 3.5f : 0.125f;
    const char* const chains[] = {"all-reduce", "reduce-scatter, then all-gather",
                                  "all-gather, then secondary partition", "update, then secondary replica"};
    std::vector<std::vector<double>> sums(std::size(chains), std::vector<double>(2));
    on_ranks(4, "rounding at random", [&](zeropp::thread_transport transport) {
        const zeropp::host exec;
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const auto own = std::span(full).subspan(n / 4 * at(comm.rank()), n / 4);
        std::vector<float> result(n), again(n), part(n / 4);
        for (std::uint64_t step = 0; step != steps; ++step) {
            const auto seed = static_cast<std::uint64_t>(comm.rank());
            const q4 q(seed, step);
            const q2 coarse(seed, step);
            const auto take = [&](std::size_t chain, const std::vector<float>& values, float times) {
                if (comm.rank() != 0) return;
                for (std::size_t i = 0; i != n; ++i) {
                    const double error = static_cast<double>(values[i] - times * full[i]);
                    sums[chain][0] += error;
                    sums[chain][1] += error * error;
                }
            };
            zeropp::quantized_all_reduce(exec, comm, zeropp::hops{fp32(), q, q}, full, result,
                                         {.algorithm = zeropp::all_reduce_algorithm::two_shot});
            take(0, result, 4);
            zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{q, fp32()}, full, part);
            zeropp::quantized_all_gather(exec, comm, q, part, result);
            take(1, result, 4);
            zeropp::quantized_all_gather(exec, comm, q, own, result);
            zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes(coarse, n, 2));
            secondary_type secondary(coarse, n, 2, comm.index(), storage.view());
            secondary.store(exec, result, step);
            zeropp::secondary_partition_gather(exec, comm, secondary, step, again);
            take(2, again, 1);
            zeropp::workspace<zeropp::host_space> kept(replica_type::storage_bytes(comm.topology(), n));
            replica_type replica(comm.topology(), comm.rank(), n, kept.view(), coarse);
            zeropp::quantized_update(exec, comm, q, std::vector<float>(n / 4), replica.to(1));
            zeropp::quantized_update(exec, comm, q, own, replica.to(2));
            zeropp::secondary_partition_gather(exec, comm, replica, 2, again);
            take(3, again, 1);
        }
    });
    for (std::size_t c = 0; c != std::size(chains); ++c) {
        INFO(chains[c] << ": sum of errors " << sums[c][0] << ", of squares " << sums[c][1]);
        CHECK(sums[c][1] > 0);
        CHECK(std::fabs(sums[c][0]) < 5.0 * std::sqrt(sums[c][1]));
    }
}

TEST_CASE("sums that are rounded at random on two levels in a row are right on average", "[collective][accuracy]") {
    using q4 = zeropp::stochastic<block_integer<4, 128>>;
    constexpr std::size_t shard = 128;
    std::vector<std::vector<double>> sums(8, std::vector<double>(2));
    on_ranks(8, "rounding at random", [&](zeropp::thread_transport transport) {
        const zeropp::three_level ranks(2, 2, 2);
        zeropp::communicator comm(ranks, transport);
        const std::size_t rank = at(comm.rank());
        // Blocks of large steps. In one node of each site, they also have small numbers.
        std::vector<float> full(8 * shard, rank / 2 % 2 == 0 ? 0.125f : 0.0f), part(shard);
        for (std::size_t i = 0; i != full.size(); i += 128) full[i] = 3.5f;
        for (std::uint64_t step = 0; step != 10; ++step) {
            const q4 q(rank, step);
            zeropp::hierarchical_quantized_reduce_scatter(zeropp::host(), comm, zeropp::hops{q, q, q}, full, part);
            for (std::size_t i = 1; i != shard; ++i) {
                const double error = static_cast<double>(part[i]) - 4 * 0.125;
                sums[rank][0] += error;
                sums[rank][1] += error * error;
            }
        }
    });
    for (const std::vector<double>& of_rank : sums) {
        INFO("sum of errors " << of_rank[0] << ", of squares " << of_rank[1]);
        CHECK(std::fabs(of_rank[0]) < 5.0 * std::sqrt(of_rank[1]));
    }
}
