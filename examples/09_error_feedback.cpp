/// \file
/// Gradients in four bits, with and without error feedback. It adds the quantization error of a step to the next step's
/// gradient, so that hardly anything is lost over many steps.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

using eight_bits = zeropp::block_integer<8, 256>;
using four_bits = zeropp::block_integer<4, 128>;
using feedback =
    zeropp::error_feedback<zeropp::hops<eight_bits, four_bits>, zeropp::residuals_in_int8, zeropp::host_space>;

int main() try {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        constexpr std::size_t n = 4000;
        constexpr int steps = 100;
        const zeropp::reduce_options options;

        // Residuals are in the caller's memory: a byte for each element of the gradient, and half a byte for the second
        // hop.
        zeropp::workspace<zeropp::host_space> storage(feedback::storage_bytes(comm.topology(), n));
        feedback memory(comm.topology(), n, storage.view());
        zeropp::workspace<zeropp::host_space> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
            comm.topology(), zeropp::hops{eight_bits{}, four_bits{}}, n, options));

        std::vector<float> gradient(n), plain(n / 4), fed(n / 4);
        std::vector<double> exact(n / 4), plain_sum(n / 4), fed_sum(n / 4);
        for (int step = 0; step != steps; ++step) {
            // Equal on every rank, and similar from step to step, as gradients are.
            for (std::size_t i = 0; i != n; ++i) {
                const double x = static_cast<double>(i);
                gradient[i] = static_cast<float>(std::sin(0.37 * x) + 0.1 * std::sin(0.11 * x * (step + 1)));
            }
            zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{eight_bits{}, four_bits{}},
                                                          gradient, plain, options, scratch.view());
            zeropp::hierarchical_quantized_reduce_scatter(
                zeropp::host{}, comm, zeropp::with_error_feedback(zeropp::hops{eight_bits{}, four_bits{}}, memory),
                gradient, fed, options, scratch.view());
            for (std::size_t i = 0; i != n / 4; ++i) {
                exact[i] += 4.0 * static_cast<double>(gradient[static_cast<std::size_t>(comm.rank()) * n / 4 + i]);
                plain_sum[i] += static_cast<double>(plain[i]);
                fed_sum[i] += static_cast<double>(fed[i]);
            }
        }

        double whole = 0, plain_error = 0, fed_error = 0;
        for (std::size_t i = 0; i != n / 4; ++i) {
            whole += exact[i] * exact[i];
            plain_error += (plain_sum[i] - exact[i]) * (plain_sum[i] - exact[i]);
            fed_error += (fed_sum[i] - exact[i]) * (fed_sum[i] - exact[i]);
        }
        plain_error = std::sqrt(plain_error / whole);
        fed_error = std::sqrt(fed_error / whole);
        std::printf("rank %d: the sum of %d steps is off by %.2f %% without feedback, %.3f %% with it\n", comm.rank(),
                    steps, 100 * plain_error, 100 * fed_error);
        if (fed_error > plain_error / 5) throw zeropp::error("feedback does not help");
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
