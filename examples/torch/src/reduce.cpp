#include "library.hpp"

#include <cstddef>
#include <memory>
#include <utility>

using namespace zeropp_torch;

namespace {

template <class Hops>
feedback_of<Hops>& memory_of(zt_feedback& feedback) {
    if (feedback.hops != Hops{}.name()) {
        throw zeropp::precondition_error("zt_reduce_scatter", "error feedback of " + Hops{}.name(),
                                         "that of " + feedback.hops);
    }
    return *static_cast<feedback_of<Hops>*>(feedback.memory.get());
}

}  // namespace

zt_status zt_reduce_scatter(zt_communicator* communicator, const char* inside, const char* across, zt_element element,
                            const zt_tensor* fulls, const zt_tensor* shards, size_t count, int mean,
                            zt_feedback* feedback, void* stream) {
    return status_of([&] {
        const zeropp::reduce_options options{.operation = mean != 0 ? zeropp::reduction::mean : zeropp::reduction::sum};
        with_hops(inside, across, element, [&]<class Hops, class T>(const Hops& hops, T) {
            auto& comm = communicator->comm;
            const zeropp::tensor_list<T, space> full(comm.topology(), listed<T>(fulls, count));
            const zeropp::tensor_list<T, space> shard(listed<T>(shards, count));
            const auto scratch = communicator->scratch_of(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
                comm.topology(), hops.inside, hops.across, full, options));
            if (feedback == nullptr) {
                zeropp::hierarchical_quantized_reduce_scatter(on(stream), comm, hops.inside, hops.across, full, shard,
                                                              options, scratch);
            } else {
                zeropp::hierarchical_quantized_reduce_scatter(on(stream), comm, hops.inside, hops.across, full, shard,
                                                              options, scratch, memory_of<Hops>(*feedback));
            }
        });
    });
}

zt_status zt_feedback_create(zt_communicator* communicator, const char* inside, const char* across, zt_element element,
                             const zt_tensor* fulls, size_t count, zt_feedback** feedback) {
    return status_of([&] {
        with_hops(inside, across, element, [&]<class Hops, class T>(const Hops&, T) {
            const auto& ranks = communicator->comm.topology();
            const zeropp::tensor_list<T, space> full(ranks, listed<T>(fulls, count));
            zeropp::workspace<space> storage(feedback_of<Hops>::storage_bytes(ranks, full, {}));
            auto memory =
                std::make_shared<feedback_of<Hops>>(ranks, full, zeropp::error_feedback_options{}, storage.view());
            *feedback = new zt_feedback{std::move(memory), Hops{}.name(), std::move(storage)};
        });
    });
}

void zt_feedback_destroy(zt_feedback* feedback) { delete feedback; }

size_t zt_feedback_bytes(const zt_feedback* feedback) { return feedback->storage.view().size(); }
