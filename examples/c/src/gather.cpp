#include "library.hpp"

#include <cstddef>
#include <cstdint>
#include <variant>

using namespace zeropp_c;

namespace {

/// Runs call(quantizer, T{}) for the format's name and the element type; for a lossless one if `is_alone`.
template <class Call>
void with_format(const char* format, zeropp_element element, bool is_alone, Call call) {
    auto quantizer = gather_formats::parse(format);
    with_element(element, [&]<class T>(T) {
        if (is_alone) quantizer = zeropp::cast_to<T>();
        std::visit([&](const auto& q) { call(q, T{}); }, quantizer);
    });
}

}  // namespace

zeropp_status zeropp_all_gather(zeropp_communicator* communicator, const char* format, zeropp_element element,
                                const zeropp_tensor* shards, const zeropp_tensor* fulls, size_t count, void* stream) {
    return status_of_collective(*communicator, __func__, stream, [&](const execution& exec) {
        // One rank sends nothing, so nothing is rounded.
        with_format(format, element, communicator->comm.size() == 1, [&]<class T>(const auto& q, T) {
            auto& comm = communicator->comm;
            const auto& full = communicator->list<T>(fulls, count);
            const auto& shard = communicator->list<T>(shards, count, true);
            const std::size_t bytes = zeropp::quantized_all_gather_workspace_bytes(comm.topology(), q, full);
            zeropp::quantized_all_gather(exec, comm, q, shard, full, {}, communicator->scratch_of(bytes));
        });
    });
}

zeropp_status zeropp_all_to_all(zeropp_communicator* communicator, const char* format, zeropp_element element,
                                const zeropp_tensor* sent, const zeropp_tensor* received, size_t count, void* stream) {
    return status_of_collective(*communicator, __func__, stream, [&](const execution& exec) {
        with_format(format, element, communicator->comm.size() == 1, [&]<class T>(const auto& q, T) {
            auto& comm = communicator->comm;
            const auto& from = communicator->list<T>(sent, count);
            const auto& to = communicator->list<T>(received, count);
            const std::size_t bytes = zeropp::quantized_all_to_all_workspace_bytes(comm.topology(), q, from);
            zeropp::quantized_all_to_all(exec, comm, q, from, to, communicator->scratch_of(bytes));
        });
    });
}

zeropp_status zeropp_message_bytes(const char* format, size_t elements, size_t* bytes) {
    return status_of([&] {
        // Elements take at most 4 bytes. The other half is for blocks' parameters and padding.
        require_at_most("zeropp_message_bytes", SIZE_MAX / 8, elements);
        *bytes =
            std::visit([&](const auto& q) { return zeropp::wire_bytes(q, elements); }, gather_formats::parse(format));
    });
}

zeropp_status zeropp_quantize(const char* format, zeropp_element element, const void* tensor, size_t elements,
                              void* message, void* stream) {
    return status_of([&] {
        with_format(format, element, false, [&]<class T>(const auto& q, T) {
            zeropp::codec<execution>::write(on(stream), q, static_cast<const T*>(tensor),
                                            zeropp::slices::single(elements, 0, elements),
                                            static_cast<std::byte*>(message));
        });
    });
}

zeropp_status zeropp_dequantize(const char* format, zeropp_element element, const void* message, size_t elements,
                                void* tensor, void* stream) {
    return status_of([&] {
        with_format(format, element, false, [&]<class T>(const auto& q, T) {
            zeropp::codec<execution>::read(on(stream), zeropp::message_sum{q, static_cast<const std::byte*>(message)},
                                           zeropp::slices::single(elements, 0, elements), static_cast<T*>(tensor));
        });
    });
}
