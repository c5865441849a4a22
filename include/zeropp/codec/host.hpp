#pragma once
/// \file
/// The codec of host executions.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host_message.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>

#include <algorithm>
#include <cstddef>

namespace zeropp {

/// Runs on one thread, in the execution's turn. Forms no pointer into `tensor` for a slot without elements, whose
/// offset may lie beyond the tensor's end; so `tensor` may be null where no slot has any.
template <host_execution E>
struct codec<E> {
    template <quantizer Q, element T>
    static void encode(const E& exec, const Q& q, const T* tensor, const slices& where, std::byte* messages) {
        exec.enqueue([=] {
            const wire_layout<Q> layout(where.count);
            for (int s = 0; s != where.slots; ++s) {
                const auto load = [=, offset = where.offset(s)](std::size_t begin, std::size_t n, float* values) {
                    const T* const slice = tensor + offset + begin;
                    for (std::size_t i = 0; i != n; ++i) values[i] = element_traits<T>::to_float(slice[i]);
                };
                detail::encode_message(q, layout, where.size(s), load, at(messages, s, layout.bytes));
            }
        });
    }

    template <quantizer Q, element T>
    static void decode(const E& exec, const Q& q, const std::byte* messages, const slices& where, T* tensor) {
        exec.enqueue([=] {
            const wire_layout<Q> layout(where.count);
            for (int s = 0; s != where.slots; ++s) {
                for_each_piece(where.size(s), [&](std::size_t begin, std::size_t n) {
                    T* const slice = tensor + where.offset(s) + begin;
                    float values[detail::piece_size];
                    detail::decode_elements(q, layout, at(messages, s, layout.bytes), begin, n, values);
                    for (std::size_t i = 0; i != n; ++i) slice[i] = element_traits<T>::from_float(values[i]);
                });
            }
        });
    }

    template <quantizer From, quantizer To>
    static void reduce_encode(const E& exec, const From& from, const std::byte* messages, int contributors,
                              const slices& where, const To& to, std::byte* sums) {
        exec.enqueue([=] {
            const wire_layout<From> in(where.count);
            const wire_layout<To> out(where.count);
            const std::size_t stride = static_cast<std::size_t>(where.slots) * in.bytes;
            for (int s = 0; s != where.slots; ++s) {
                const std::byte* const first = at(messages, s, in.bytes);
                const auto load = [=](std::size_t begin, std::size_t n, float* values) {
                    detail::sum_elements(from, in, first, stride, contributors, begin, n, values);
                };
                detail::encode_message(to, out, where.size(s), load, at(sums, s, out.bytes));
            }
        });
    }

    template <quantizer From, element T>
    static void reduce_decode(const E& exec, const From& from, const std::byte* messages, int contributors,
                              const slices& where, T* tensor, finish f) {
        exec.enqueue([=] {
            const wire_layout<From> in(where.count);
            const std::size_t stride = static_cast<std::size_t>(where.slots) * in.bytes;
            for (int s = 0; s != where.slots; ++s) {
                for_each_piece(where.size(s), [&](std::size_t begin, std::size_t n) {
                    T* const slice = tensor + where.offset(s) + begin;
                    float values[detail::piece_size];
                    detail::sum_elements(from, in, at(messages, s, in.bytes), stride, contributors, begin, n, values);
                    for (std::size_t i = 0; i != n; ++i) {
                        const float result = quotient(values[i], f.divisor);
                        const float sum = f.accumulate ? element_traits<T>::to_float(slice[i]) + result : result;
                        slice[i] = element_traits<T>::from_float(sum);
                    }
                });
            }
        });
    }

private:
    template <class Byte>
    static Byte* at(Byte* messages, int slot, std::size_t bytes) {
        return messages + static_cast<std::size_t>(slot) * bytes;
    }

    template <class F>
    static void for_each_piece(std::size_t size, F f) {
        for (std::size_t begin = 0; begin < size; begin += detail::piece_size) {
            f(begin, std::min(detail::piece_size, size - begin));
        }
    }
};

}  // namespace zeropp
