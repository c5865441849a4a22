#include "library.hpp"

#include <cstddef>

using namespace zeropp_c;

zeropp_status zeropp_reduce_scatter(zeropp_communicator* communicator, const char* intra_node, const char* inter_node,
                                    zeropp_element element, const zeropp_tensor* fulls, const zeropp_tensor* shards,
                                    size_t count, int mean, zeropp_feedback* feedback, void* stream) {
    return status_of_collective(*communicator, __func__, stream, [&](const execution& exec) {
        const zeropp::reduce_options options{.operation = mean != 0 ? zeropp::reduction::mean : zeropp::reduction::sum};
        with_hops(*communicator, intra_node, inter_node, element, [&]<class Hops, class T>(const Hops& hops, T) {
            auto& comm = communicator->comm;
            communicator->call->formats = text_of(hops);
            const auto& full = communicator->list<T>(fulls, count);
            const auto& shard = communicator->list<T>(shards, count, true);
            const auto scratch = communicator->scratch_of(
                zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(comm.topology(), hops, full, options));
            if (feedback == nullptr) {
                zeropp::hierarchical_quantized_reduce_scatter(exec, comm, hops, full, shard, options, scratch);
            } else {
                communicator->pending.keep(feedback->memory.memory);
                zeropp::hierarchical_quantized_reduce_scatter(
                    exec, comm,
                    zeropp::with_error_feedback(hops, feedback->of<feedback_of<Hops>>("zeropp_reduce_scatter")), full,
                    shard, options, scratch);
            }
        });
    });
}

zeropp_status zeropp_feedback_create(zeropp_communicator* communicator, const char* intra_node, const char* inter_node,
                                     zeropp_element element, const zeropp_tensor* fulls, size_t count,
                                     zeropp_feedback** feedback) {
    return status_of([&] {
        with_hops(*communicator, intra_node, inter_node, element, [&]<class Hops, class T>(const Hops&, T) {
            *feedback = zeropp_feedback::made<feedback_of<Hops>, T>(*communicator, fulls, count);
        });
    });
}

void zeropp_feedback_destroy(zeropp_feedback* feedback) { delete feedback; }

void zeropp_feedback_reset(zeropp_feedback* feedback) { feedback->reset(feedback->memory); }

size_t zeropp_feedback_bytes(const zeropp_feedback* feedback) { return feedback->memory.bytes; }
