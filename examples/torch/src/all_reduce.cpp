#include "library.hpp"

using namespace zeropp_torch;

zt_status zt_all_reduce(zt_communicator* communicator, const char* inside, const char* across, zt_element element,
                        const zt_tensor* tensors, const zt_tensor* results, size_t count, int mean, void* stream) {
    return status_of([&] {
        const zeropp::all_reduce_options options{.operation =
                                                     mean != 0 ? zeropp::reduction::mean : zeropp::reduction::sum};
        with_hops(inside, across, element, [&]<class T>(const auto& hops, T) {
            auto& comm = communicator->comm;
            const zeropp::tensor_list<T, space> full(comm.topology(), listed<T>(tensors, count));
            const zeropp::tensor_list<T, space> result(comm.topology(), listed<T>(results, count));
            const auto scratch = communicator->scratch_of(zeropp::quantized_all_reduce_workspace_bytes(
                comm.topology(), hops.inside, hops.across, hops.across, full, options));
            zeropp::quantized_all_reduce(on(stream), comm, hops.inside, hops.across, hops.across, full, result, options,
                                         scratch);
        });
    });
}
