/// \file
/// A layer's tensors in one call, without a copy: weights are gathered, gradients are reduced, with one message for
/// each peer and hop. Tensors may have different sizes. Each is divided over the ranks by itself.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

int main() try {
    constexpr int ranks = 4;
    zeropp::run_on_threads(ranks, [](zeropp::thread_transport transport) {
        const zeropp::two_level topology(2, 2);
        zeropp::communicator comm(topology, zeropp::counting(transport, topology));
        const zeropp::block_integer<8, 256> int8;

        // A matrix of 10 rows, divided by rows as in FSDP; its bias; one number.
        constexpr std::size_t columns = 300;
        std::vector<float> matrix(10 * columns), bias(columns), scale(1);
        const zeropp::partition rows(matrix.size(), ranks, columns), parts(bias.size(), ranks), one(1, ranks);
        std::vector<float> own_rows(rows.size(comm.rank()), static_cast<float>(comm.rank())),
            own_bias(parts.size(comm.rank()), 1.0f), own_scale(one.size(comm.rank()), 0.5f);

        // Made once; every step uses them.
        const zeropp::tensor_list<float> whole(topology, {{matrix, {.row = columns}}, bias, scale});
        const zeropp::tensor_list<float> own({own_rows, own_bias, own_scale});
        zeropp::quantized_all_gather(zeropp::host{}, comm, int8, own, whole);
        if (std::fabs(matrix[9 * columns] - 3) > 0.02f || bias[299] != 1 || scale[0] != 0.5f) {
            throw zeropp::error("wrong weights");
        }

        // Takes the weights for gradients.
        zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{int8, int8}, whole, own,
                                                      {.operation = zeropp::reduction::mean});
        for (const float g : own_rows) {
            if (std::fabs(g - static_cast<float>(comm.rank())) > 0.05f) throw zeropp::error("wrong gradients");
        }
        if (comm.rank() == 0) {
            std::printf("3 tensors in 2 calls: %llu bytes inside nodes and %llu across, from each rank\n",
                        static_cast<unsigned long long>(comm.world().total().intra_node_bytes),
                        static_cast<unsigned long long>(comm.world().total().inter_node_bytes));
        }
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
