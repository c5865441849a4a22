#include "library.hpp"

#include <cstddef>
#include <string>
#include <string_view>

using namespace zeropp_c;

namespace {

zeropp::all_reduce_algorithm algorithm_named(std::string_view name) {
    using enum zeropp::all_reduce_algorithm;
    if (name == "by_size") return by_size;
    if (name == "one_shot") return one_shot;
    if (name == "two_shot") return two_shot;
    throw zeropp::precondition_error("zeropp_all_reduce", "an algorithm, by_size, one_shot or two_shot",
                                     std::string(name));
}

}  // namespace

zeropp_status zeropp_all_reduce(zeropp_communicator* communicator, const char* intra_node, const char* inter_node,
                                zeropp_element element, const zeropp_tensor* tensors, const zeropp_tensor* results,
                                size_t count, int mean, zeropp_feedback* feedback, void* stream) {
    return zeropp_all_reduce_with_algorithm(communicator, "by_size", intra_node, inter_node, element, tensors, results,
                                            count, mean, feedback, stream);
}

zeropp_status zeropp_all_reduce_with_algorithm(zeropp_communicator* communicator, const char* algorithm,
                                               const char* intra_node, const char* inter_node, zeropp_element element,
                                               const zeropp_tensor* tensors, const zeropp_tensor* results, size_t count,
                                               int mean, zeropp_feedback* feedback, void* stream) {
    return status_of_collective(*communicator, "zeropp_all_reduce", stream, [&](const execution& exec) {
        const zeropp::all_reduce_options options{.operation =
                                                     mean != 0 ? zeropp::reduction::mean : zeropp::reduction::sum,
                                                 .algorithm = algorithm_named(algorithm)};
        with_hops(*communicator, intra_node, inter_node, element, [&]<class Hops, class T>(const Hops& hops, T) {
            auto& comm = communicator->comm;
            communicator->call->formats = text_of(all_reduce_hops(hops));
            const auto& full = communicator->list<T>(tensors, count);
            const auto& result = communicator->list<T>(results, count);
            const auto scratch = communicator->scratch_of(
                zeropp::quantized_all_reduce_workspace_bytes(comm.topology(), all_reduce_hops(hops), full, options));
            if (feedback == nullptr) {
                zeropp::quantized_all_reduce(exec, comm, all_reduce_hops(hops), full, result, options, scratch);
            } else {
                communicator->pending.keep(feedback->memory.memory);
                auto& residuals = feedback->of<all_reduce_feedback_of<Hops>>("zeropp_all_reduce");
                zeropp::quantized_all_reduce(exec, comm, zeropp::with_error_feedback(all_reduce_hops(hops), residuals),
                                             full, result, options, scratch);
            }
        });
    });
}

zeropp_status zeropp_all_reduce_feedback_create(zeropp_communicator* communicator, const char* intra_node,
                                                const char* inter_node, zeropp_element element,
                                                const zeropp_tensor* fulls, size_t count, zeropp_feedback** feedback) {
    return status_of([&] {
        with_hops(*communicator, intra_node, inter_node, element, [&]<class Hops, class T>(const Hops&, T) {
            *feedback = zeropp_feedback::made<all_reduce_feedback_of<Hops>, T>(*communicator, fulls, count);
        });
    });
}
