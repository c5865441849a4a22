#include "library.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

using namespace zeropp_c;

zeropp_status zeropp_all_reduce_algorithm(zeropp_communicator* communicator, const char* algorithm) {
    return status_of([&] {
        using enum zeropp::all_reduce_algorithm;
        constexpr std::pair<std::string_view, zeropp::all_reduce_algorithm> known[] = {
            {"by_size", by_size}, {"one_shot", one_shot}, {"two_shot", two_shot}};
        const auto found = std::ranges::find(known, algorithm, [](const auto& named) { return named.first; });
        if (found == std::end(known)) {
            throw zeropp::precondition_error(__func__, "by_size, one_shot or two_shot", algorithm);
        }
        communicator->algorithm = found->second;
    });
}

zeropp_status zeropp_all_reduce(zeropp_communicator* communicator, const char* intra_node, const char* inter_node,
                                zeropp_element element, const zeropp_tensor* tensors, const zeropp_tensor* results,
                                size_t count, int mean, zeropp_feedback* feedback, void* stream) {
    return status_of_collective(*communicator, __func__, stream, [&](const execution& exec) {
        const zeropp::all_reduce_options options{.operation =
                                                     mean != 0 ? zeropp::reduction::mean : zeropp::reduction::sum,
                                                 .algorithm = communicator->algorithm};
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
