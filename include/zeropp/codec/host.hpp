#pragma once
/// \file
/// The codec of host executions.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host_message.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp {

namespace detail {

// The passes, in the execution's turn. They know nothing of executions, so that those of the host share their
// instances.

/// load(begin, n, buffer), as encode_message wants it, of the elements from `offset` on.
template <element T>
auto loader(const T* tensor, std::size_t offset) {
    return [=](std::size_t begin, auto n, float* buffer) -> const float* {
        const T* const slice = tensor + offset + begin;
        if constexpr (std::is_same_v<T, float>) {
            return slice;
        } else {
            for (std::size_t i = 0; i != n; ++i) buffer[i] = element_traits<T>::to_float(slice[i]);
            return buffer;
        }
    };
}
template <element T, element Base>
auto loader(const difference<T, Base>& d, std::size_t offset) {
    return [=](std::size_t begin, auto n, float* buffer) -> const float* {
        const T* const slice = d.tensor + offset + begin;
        const Base* const base = d.base + offset + begin;
        for (std::size_t i = 0; i != n; ++i) {
            buffer[i] = element_traits<T>::to_float(slice[i]) - element_traits<Base>::to_float(base[i]);
        }
        return buffer;
    };
}

template <class Residuals>
slot_residuals<Residuals> residuals_of(const Residuals& residuals, int slot, std::size_t begin) {
    if constexpr (std::is_same_v<Residuals, no_feedback>) {
        return {};
    } else {
        return {residuals, slot, begin};
    }
}

template <class Byte>
Byte* message_at(Byte* messages, int slot, std::size_t bytes) {
    return messages + static_cast<std::size_t>(slot) * bytes;
}

template <quantizer Q, class Tensor, class Residuals>
void encode_slots(Q q, Tensor tensor, const slices& where, std::byte* messages, Residuals residuals) {
    const wire_layout<Q> layout(where.count);
    for (int s = 0; s != where.slots; ++s) {
        encode_message(q, layout, where.size(s), {where.index(s), false}, loader(tensor, where.offset(s)),
                       residuals_of(residuals, s, where.begin), message_at(messages, s, layout.bytes));
    }
}

template <quantizer Q, element T>
void decode_slots(Q q, const std::byte* messages, const slices& where, T* tensor) {
    const wire_layout<Q> layout(where.count);
    for (int s = 0; s != where.slots; ++s) {
        const std::byte* const message = message_at(messages, s, layout.bytes);
        const Q own = quantizer_of(q, layout, message);
        for_each_piece_on_target<piece_size>(where.size(s), [&](std::size_t begin, auto n) {
            T* const slice = tensor + where.offset(s) + begin;
            if (decode_by_table(own, layout, message, begin, n, slice)) return;
            if constexpr (std::is_same_v<T, float>) {
                decode_elements(own, layout, message, begin, n, [=](std::size_t i, float x) { slice[i] = x; });
                rotate<Q>(slice, n, true);
            } else {
                // In two loops, which compilers turn into vector code where they do not one with both conversions.
                float values[piece_size];
                decode_elements(own, layout, message, begin, n, [&](std::size_t i, float x) { values[i] = x; });
                rotate<Q>(values, n, true);
                for (std::size_t i = 0; i != n; ++i) slice[i] = element_traits<T>::from_float(values[i]);
            }
        });
    }
}

template <quantizer From, quantizer To, class Residuals>
void reduce_encode_slots(From from, const std::byte* messages, int contributors, const slices& where, To to,
                         std::byte* sums, Residuals residuals) {
    const wire_layout<From> in(where.count);
    const wire_layout<To> out(where.count);
    const std::size_t stride = static_cast<std::size_t>(where.slots) * in.bytes;
    for (int s = 0; s != where.slots; ++s) {
        const std::byte* const first = message_at(messages, s, in.bytes);
        const auto load = [=](std::size_t begin, auto n, float* buffer) {
            sum_elements(from, in, first, stride, contributors, begin, n, buffer);
            return buffer;
        };
        encode_message(to, out, where.size(s), {where.index(s), true}, load, residuals_of(residuals, s, where.begin),
                       message_at(sums, s, out.bytes));
    }
}

template <quantizer From, element T>
void reduce_decode_slots(From from, const std::byte* messages, int contributors, const slices& where, T* tensor,
                         finish f) {
    const wire_layout<From> in(where.count);
    const std::size_t stride = static_cast<std::size_t>(where.slots) * in.bytes;
    for (int s = 0; s != where.slots; ++s) {
        for_each_piece_on_target<piece_size>(where.size(s), [&](std::size_t begin, auto n) {
            T* const slice = tensor + where.offset(s) + begin;
            float sums[piece_size];
            sum_elements(from, in, message_at(messages, s, in.bytes), stride, contributors, begin, n, sums);
            if (f.accumulate) {
                for (std::size_t i = 0; i != n; ++i) {
                    const float held = element_traits<T>::to_float(slice[i]);
                    slice[i] = element_traits<T>::from_float(held + quotient(sums[i], f.divisor));
                }
            } else {
                for (std::size_t i = 0; i != n; ++i) {
                    slice[i] = element_traits<T>::from_float(quotient(sums[i], f.divisor));
                }
            }
        });
    }
}

}  // namespace detail

/// Runs on one thread, in the execution's turn, with the widest vectors that the processor has, whatever the program is
/// compiled for. Forms no pointer into `tensor` for a slot without elements, whose offset may lie beyond the tensor's
/// end; so `tensor` may be null where no slot has any.
template <host_execution E>
struct codec<E> {
    template <quantizer Q, class Tensor, class Residuals = no_feedback>
    static void encode(const E& exec, const Q& q, const Tensor& tensor, const slices& where, std::byte* messages,
                       const Residuals& residuals = {}) {
        exec.enqueue([=] { detail::encode_slots(q, tensor, where, messages, residuals); });
    }

    template <quantizer Q, element T>
    static void decode(const E& exec, const Q& q, const std::byte* messages, const slices& where, T* tensor) {
        exec.enqueue([=] { detail::decode_slots(q, messages, where, tensor); });
    }

    template <quantizer From, quantizer To, class Residuals = no_feedback>
    static void reduce_encode(const E& exec, const From& from, const std::byte* messages, int contributors,
                              const slices& where, const To& to, std::byte* sums, const Residuals& residuals = {}) {
        exec.enqueue([=] { detail::reduce_encode_slots(from, messages, contributors, where, to, sums, residuals); });
    }

    template <quantizer From, element T>
    static void reduce_decode(const E& exec, const From& from, const std::byte* messages, int contributors,
                              const slices& where, T* tensor, finish f) {
        exec.enqueue([=] { detail::reduce_decode_slots(from, messages, contributors, where, tensor, f); });
    }

    template <element T>
    static void squared_error(const E& exec, const T* tensor, const float* decoded, std::size_t n, double* energies) {
        exec.enqueue([=] {
            double signal = 0;
            double error = 0;
            for (std::size_t i = 0; i != n; ++i) {
                const double x = element_traits<T>::to_float(tensor[i]);
                const double off = x - static_cast<double>(decoded[i]);
                signal += x * x;
                error += off * off;
            }
            energies[0] = signal;
            energies[1] = error;
        });
    }
};

}  // namespace zeropp
