/// \file
/// Gradient accumulation, in both ways: microbatches added up on each rank and reduced once, and each microbatch
/// reduced into what the shard holds.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

namespace {
float gradient_of(int rank, int microbatch, std::size_t i) {
    return std::sin(static_cast<float>(i) + static_cast<float>(rank + 10 * microbatch));
}
}  // namespace

int main() try {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        constexpr int microbatches = 4;
        constexpr std::size_t n = 40'000;
        const zeropp::host exec;
        const zeropp::two_level nodes(2, 2);
        zeropp::communicator comm(nodes, zeropp::counting(transport, nodes));
        const zeropp::block_integer<8, 256> intra_node;
        const zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16> inter_node;
        std::vector<float> gradient(n), once(n / 4), each(n / 4), exact(n / 4);
        for (std::size_t i = 0; i != exact.size(); ++i) {
            const std::size_t at = static_cast<std::size_t>(comm.rank()) * exact.size() + i;
            for (int m = 0; m != microbatches; ++m) {
                for (int r = 0; r != comm.size(); ++r) exact[i] += gradient_of(r, m, at) / 4;
            }
        }
        const auto off = [&](const std::vector<float>& shard) {
            float worst = 0;
            for (std::size_t i = 0; i != shard.size(); ++i) worst = std::fmax(worst, std::fabs(shard[i] - exact[i]));
            return worst;
        };

        // [once]
        for (int m = 0; m != microbatches; ++m) {
            for (std::size_t i = 0; i != n; ++i) gradient[i] += gradient_of(comm.rank(), m, i);
        }
        zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{intra_node, inter_node}, gradient, once,
                                                      {.operation = zeropp::reduction::mean});
        // [once]
        const auto bytes_once = comm.world().total().inter_node_bytes;
        comm.world().reset();

        // [each]
        for (int m = 0; m != microbatches; ++m) {
            for (std::size_t i = 0; i != n; ++i) gradient[i] = gradient_of(comm.rank(), m, i);
            zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{intra_node, inter_node}, gradient,
                                                          each,
                                                          {.operation = zeropp::reduction::mean, .accumulate = m != 0});
        }
        // [each]
        const auto bytes_each = comm.world().total().inter_node_bytes;
        if (comm.rank() == 0) {
            std::printf(
                "reduced once: %llu bytes across nodes, off by %.3f; each microbatch: %llu bytes, off by %.3f\n",
                static_cast<unsigned long long>(bytes_once), off(once), static_cast<unsigned long long>(bytes_each),
                off(each));
        }
        if (bytes_each != microbatches * bytes_once || off(once) > 1 || off(each) > 1) throw zeropp::error("wrong");
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
