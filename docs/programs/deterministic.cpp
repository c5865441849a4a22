/// \file
/// The bits of a result depend on the numbers, the ranks and the quantizers, and on nothing else: not on the run, the
/// threads, the execution or the number of chunks. Rounding at random is no exception: its noise is a function.

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

int main() try {
    zeropp::run_on_threads(6, [](zeropp::thread_transport transport) {
        constexpr std::size_t n = 100'003;
        zeropp::communicator comm(zeropp::two_level(2, 3), transport);
        const zeropp::block_integer<8, 256> int8;
        std::vector<float> gradient(n), expected(n), result(n);
        for (std::size_t i = 0; i != n; ++i) gradient[i] = std::sin(static_cast<float>(i) * float(comm.rank() + 1));

        // [seeds]
        const auto rank = static_cast<std::uint64_t>(comm.rank());
        const std::uint64_t step = 17;
        using int4 = zeropp::block_integer<4, 128, zeropp::symmetric, zeropp::bfloat16>;
        const zeropp::stochastic<int4> noisy(rank, step);  // a seed for each rank, and the step's number
        // [seeds]

        const auto reduce = [&](const auto& exec, int chunks) {
            std::vector<std::byte> scratch(zeropp::quantized_all_reduce_workspace_bytes(
                comm.topology(), zeropp::hops{int8, noisy, int8}, n, {.chunks = chunks}));
            zeropp::quantized_all_reduce(exec, comm, zeropp::hops{int8, noisy, int8}, gradient, result,
                                         {.chunks = chunks}, scratch);
        };
        reduce(zeropp::host{}, 1);
        expected = result;

        const zeropp::host_threads three(3);
        const zeropp::host_queue intra_node, inter_node;
        const auto same = [&](const char* what) {
            if (result != expected) throw zeropp::error(what);
            std::fill(result.begin(), result.end(), 0.0f);
        };
        reduce(zeropp::host{}, 1), same("another run");
        reduce(three, 1), same("three threads");
        reduce(zeropp::host{}, 7), same("seven chunks");
        const zeropp::pipeline<zeropp::host_queue> both{intra_node, inter_node};
        std::vector<std::byte> scratch(zeropp::quantized_all_reduce_workspace_bytes(
            comm.topology(), zeropp::hops{int8, noisy, int8}, n, {.chunks = 5}));
        zeropp::quantized_all_reduce(both, comm, zeropp::hops{int8, noisy, int8}, gradient, result, {.chunks = 5},
                                     scratch);
        intra_node.wait();
        same("two queues, five chunks");
        if (comm.rank() == 0) std::puts("the same bits: again, on three threads, in seven chunks, on two queues");
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
