#include "library.hpp"

#include <cstddef>

using namespace zeropp_torch;

zt_status zt_all_reduce(zt_communicator* communicator, const char* intra_node, const char* inter_node,
                        zt_element element, const zt_tensor* tensors, const zt_tensor* results, size_t count, int mean,
                        zt_feedback* feedback, void* stream) {
    return status_of_collective(*communicator, __func__, stream, [&](const execution& exec) {
        const zeropp::all_reduce_options options{.operation =
                                                     mean != 0 ? zeropp::reduction::mean : zeropp::reduction::sum};
        with_hops(intra_node, inter_node, element, [&]<class Hops, class T>(const Hops& hops, T) {
            auto& comm = communicator->comm;
            const auto& full = communicator->list<T>(tensors, count);
            const auto& result = communicator->list<T>(results, count);
            const auto scratch = communicator->scratch_of(
                zeropp::quantized_all_reduce_workspace_bytes(comm.topology(), all_reduce_hops(hops), full, options));
            if (feedback == nullptr) {
                zeropp::quantized_all_reduce(exec, comm, all_reduce_hops(hops), full, result, options, scratch);
            } else {
                communicator->pending.keep(feedback->memory.memory);
                auto& residuals = feedback->of<all_reduce_feedback_of<Hops>>("zt_all_reduce");
                zeropp::quantized_all_reduce(exec, comm, zeropp::with_error_feedback(all_reduce_hops(hops), residuals),
                                             full, result, options, scratch);
            }
        });
    });
}

zt_status zt_all_reduce_feedback_create(zt_communicator* communicator, const char* intra_node, const char* inter_node,
                                        zt_element element, const zt_tensor* fulls, size_t count,
                                        zt_feedback** feedback) {
    return status_of([&] {
        with_hops(intra_node, inter_node, element, [&]<class Hops, class T>(const Hops&, T) {
            *feedback = zt_feedback::made<all_reduce_feedback_of<Hops>, T>(*communicator, fulls, count);
        });
    });
}
