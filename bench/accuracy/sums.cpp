#include "accuracy/sums.hpp"

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstdint>
#include <utility>

namespace zeropp_bench {

namespace {

/// The tensors of all ranks, and their exact sum.
struct gradients {
    std::vector<std::vector<float>> of_rank;
    std::vector<double> sum;

    gradients(distribution d, int ranks, std::size_t slice) : sum(static_cast<std::size_t>(ranks) * slice) {
        for (int r = 0; r != ranks; ++r) {
            of_rank.push_back(values_of(d, 100 + static_cast<std::uint64_t>(r), sum.size()));
            for (std::size_t i = 0; i != sum.size(); ++i) sum[i] += static_cast<double>(of_rank.back()[i]);
        }
    }
};

template <zeropp::quantizer IntraNode, zeropp::quantizer InterNode>
double relative_error(const IntraNode& intra_node, const InterNode& inter_node, const zeropp::two_level& nodes,
                      const gradients& given) {
    std::vector<float> result(given.sum.size());
    zeropp::run_on_threads(nodes.size(), [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(nodes, transport);
        const zeropp::partition part(result.size(), nodes.size());
        const zeropp::host_view<float> shard(result.data() + part.offset(comm.rank()), part.size(comm.rank()));
        const std::vector<float>& own = given.of_rank[static_cast<std::size_t>(comm.rank())];
        zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{intra_node, inter_node}, own,
                                                      shard);
    });
    double signal = 0;
    double noise = 0;
    for (std::size_t i = 0; i != result.size(); ++i) {
        const double off = static_cast<double>(result[i]) - given.sum[i];
        signal += given.sum[i] * given.sum[i];
        noise += off * off;
    }
    return std::sqrt(noise / signal);
}

}  // namespace

std::vector<sum_accuracy> measure_sums(distribution d, int nodes, int ranks_per_node, std::size_t slice) {
    const int ranks = nodes * ranks_per_node;
    const gradients given(d, ranks, slice);
    const zeropp::two_level apart(nodes, ranks_per_node);
    const zeropp::two_level together(1, ranks);
    std::vector<sum_accuracy> all;
    const auto measure = [&](const auto& intra_node, const auto& inter_node) {
        all.push_back({zeropp::short_text(intra_node.name()).str(), zeropp::short_text(inter_node.name()).str(),
                       relative_error(intra_node, inter_node, together, given),
                       relative_error(intra_node, inter_node, apart, given)});
    };
    using zeropp::block_integer;
    using zeropp::hadamard;
    using int4_signed = block_integer<4, 128, zeropp::signed_absmax, zeropp::half>;
    measure(block_integer<4, 128>{}, block_integer<4, 128>{});
    measure(block_integer<8, 512>{}, block_integer<4, 128>{});
    measure(hadamard<block_integer<8, 512>>{}, hadamard<block_integer<4, 128>>{});
    measure(block_integer<8, 256>{}, block_integer<8, 256>{});
    measure(hadamard<block_integer<8, 512>>{}, hadamard<int4_signed>{});
    return all;
}

sixteen_bits_accuracy measure_sixteen_bits(distribution d, int nodes, int ranks_per_node, std::size_t elements) {
    using zeropp::bfloat16;
    const int ranks = nodes * ranks_per_node;
    std::vector<std::vector<bfloat16>> of_rank;
    std::vector<double> exact(elements);
    std::vector<bfloat16> ring(elements);
    for (int r = 0; r != ranks; ++r) {
        std::vector<bfloat16> own;
        for (const float x : values_of(d, 100 + static_cast<std::uint64_t>(r), elements)) own.emplace_back(x);
        for (std::size_t i = 0; i != elements; ++i) {
            exact[i] += static_cast<double>(static_cast<float>(own[i]));
            ring[i] = r == 0 ? own[i] : bfloat16(static_cast<float>(ring[i]) + static_cast<float>(own[i]));
        }
        of_rank.push_back(std::move(own));
    }
    std::vector<bfloat16> result(elements);
    zeropp::run_on_threads(ranks, [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(nodes, ranks_per_node), transport);
        const zeropp::cast_to<bfloat16> wire;
        std::vector<bfloat16>& own = of_rank[static_cast<std::size_t>(comm.rank())];
        zeropp::quantized_all_reduce(zeropp::host{}, comm, zeropp::hops{wire, wire, wire}, own, own,
                                     {.algorithm = zeropp::all_reduce_algorithm::two_shot});
        if (comm.rank() == 0) result = own;
    });
    const auto error = [&](const std::vector<bfloat16>& given) {
        double signal = 0;
        double noise = 0;
        for (std::size_t i = 0; i != elements; ++i) {
            const double off = static_cast<double>(static_cast<float>(given[i])) - exact[i];
            signal += exact[i] * exact[i];
            noise += off * off;
        }
        return std::sqrt(noise / signal);
    };
    return {nodes, ranks_per_node, error(ring), error(result)};
}

}  // namespace zeropp_bench
