#include "library.hpp"

using namespace zeropp_torch;

zt_status zt_all_reduce(zt_communicator* communicator, const char* intra_node, const char* inter_node,
                        zt_element element, const zt_tensor* tensors, const zt_tensor* results, size_t count, int mean,
                        void* stream) {
    return status_of_collective(*communicator, __func__, stream, [&](const execution& exec) {
        const zeropp::all_reduce_options options{.operation =
                                                     mean != 0 ? zeropp::reduction::mean : zeropp::reduction::sum};
        with_hops(intra_node, inter_node, element, [&]<class T>(const auto& hops, T) {
            auto& comm = communicator->comm;
            const auto& full = communicator->list<T>(tensors, count);
            const auto& result = communicator->list<T>(results, count);
            const auto scratch = communicator->scratch_of(zeropp::quantized_all_reduce_workspace_bytes(
                comm.topology(), zeropp::hops{hops.intra_node, hops.inter_node, hops.inter_node}, full, options));
            zeropp::quantized_all_reduce(exec, comm, zeropp::hops{hops.intra_node, hops.inter_node, hops.inter_node},
                                         full, result, options, scratch);
        });
    });
}
