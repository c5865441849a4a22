#include "library.hpp"

#include <variant>

using namespace zeropp_torch;

zt_status zt_all_reduce(zt_communicator* communicator, const char* inside, const char* across, zt_element element,
                        const zt_tensor* tensors, const zt_tensor* results, size_t count, int mean, void* stream) {
    return status_of([&] {
        const reduce_formats formats = parse_reduce_formats(inside, across);
        const zeropp::all_reduce_options options{.operation =
                                                     mean != 0 ? zeropp::reduction::mean : zeropp::reduction::sum};
        with_element(element, [&]<class T>(T) {
            auto& comm = communicator->comm;
            const zeropp::tensor_list<T, space> full(comm.topology(), listed<T>(tensors, count));
            const zeropp::tensor_list<T, space> result(comm.topology(), listed<T>(results, count));
            std::visit(
                [&]<class Hops>(Hops) {
                    const typename Hops::inside_type first;
                    const typename Hops::across_type second;
                    const auto scratch = communicator->scratch_of(zeropp::quantized_all_reduce_workspace_bytes(
                        comm.topology(), first, second, second, full, options));
                    zeropp::quantized_all_reduce(on(stream), comm, first, second, second, full, result, options,
                                                 scratch);
                },
                formats);
        });
    });
}
