/// \file
/// The gradient all-reduce of data parallelism. First with 16 bits on the wire and sums in float, which loses very
/// little. Then with 8 bits within the node and 4 between nodes. Every rank ends with the same bits.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

namespace {
float gradient_of(int rank, std::size_t i) { return std::sin(static_cast<float>(i) + static_cast<float>(rank)); }
}  // namespace

int main() try {
    constexpr int nodes = 2, ranks_per_node = 2;
    constexpr std::size_t elements = 100'000;
    zeropp::run_on_threads(nodes * ranks_per_node, [](zeropp::thread_transport transport) {
        const zeropp::two_level topology(nodes, ranks_per_node);
        zeropp::communicator comm(topology, zeropp::counting(transport, topology));
        std::vector<float> gradient(elements), mean(elements);
        for (std::size_t i = 0; i != elements; ++i) gradient[i] = gradient_of(comm.rank(), i);

        const auto report = [&](const char* what, float allowed) {
            float worst = 0;
            for (std::size_t i = 0; i != elements; ++i) {
                float exact = 0;
                for (int r = 0; r != comm.size(); ++r) exact += gradient_of(r, i) / 4;
                worst = std::fmax(worst, std::fabs(mean[i] - exact));
            }
            if (comm.rank() == 0) {
                std::printf("%s: %llu bytes across nodes from each rank, off by %.4f at most\n", what,
                            static_cast<unsigned long long>(comm.world().total().inter_node_bytes), worst);
            }
            if (worst > allowed) throw zeropp::error("the error is larger than it may be");
            comm.world().reset();
        };

        const zeropp::cast_to<zeropp::bfloat16> bf16;  // the safe first step: bf16 on the wire, sums in float
        zeropp::quantized_all_reduce(zeropp::host{}, comm, zeropp::hops{bf16, bf16, bf16}, gradient, mean,
                                     {.operation = zeropp::reduction::mean});
        report("bf16", 0.006f);

        const zeropp::block_integer<8, 256> int8;
        const zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16> int4;
        zeropp::quantized_all_reduce(zeropp::host{}, comm, zeropp::hops{int8, int4, int4}, gradient, mean,
                                     {.operation = zeropp::reduction::mean});
        report("int8 inside nodes, int4 across", 0.2f);
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
