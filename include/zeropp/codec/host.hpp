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

/// Runs on one thread, in the execution's turn, with the widest vectors that the processor has, whatever the program is
/// compiled for. Forms no pointer into `tensor` for a slot without elements, whose offset may lie beyond the tensor's
/// end; so `tensor` may be null where no slot has any.
template <host_execution E>
struct codec<E> {
    template <quantizer Q, class Tensor, class Residuals = no_feedback>
    static void encode(const E& exec, const Q& q, const Tensor& tensor, const slices& where, std::byte* messages,
                       const Residuals& residuals = {}) {
        enqueue_slots(exec, where, [=](int s) {
            const wire_layout<Q> layout(where.count);
            detail::encode_message(q, layout, where.size(s), {where.index(s), false}, loader(tensor, where.offset(s)),
                                   residuals_of(residuals, s, where.begin), at(messages, s, layout.bytes));
        });
    }

    template <quantizer Q, element T>
    static void decode(const E& exec, const Q& q, const std::byte* messages, const slices& where, T* tensor) {
        enqueue_slots(exec, where, [=](int s) {
            const wire_layout<Q> layout(where.count);
            const std::byte* const message = at(messages, s, layout.bytes);
            const Q own = detail::quantizer_of(q, layout, message);
            detail::for_each_piece_on_target<detail::piece_size>(where.size(s), [&](std::size_t begin, auto n) {
                T* const slice = tensor + where.offset(s) + begin;
                if (detail::decode_by_table(own, layout, message, begin, n, slice)) return;
                if constexpr (std::is_same_v<T, float>) {
                    detail::decode_elements(own, layout, message, begin, n,
                                            [=](std::size_t i, float x) { slice[i] = x; });
                    detail::rotate<Q>(slice, n, true);
                } else {
                    // In two loops, which compilers turn into vector code where they do not one with both conversions.
                    float values[detail::piece_size];
                    detail::decode_elements(own, layout, message, begin, n,
                                            [&](std::size_t i, float x) { values[i] = x; });
                    detail::rotate<Q>(values, n, true);
                    for (std::size_t i = 0; i != n; ++i) slice[i] = element_traits<T>::from_float(values[i]);
                }
            });
        });
    }

    template <quantizer From, quantizer To, class Residuals = no_feedback>
    static void reduce_encode(const E& exec, const From& from, const std::byte* messages, int contributors,
                              const slices& where, const To& to, std::byte* sums, const Residuals& residuals = {}) {
        enqueue_slots(exec, where, [=](int s) {
            const wire_layout<From> in(where.count);
            const wire_layout<To> out(where.count);
            const std::size_t stride = static_cast<std::size_t>(where.slots) * in.bytes;
            const auto load = [=, first = at(messages, s, in.bytes)](std::size_t begin, auto n, float* buffer) {
                detail::sum_elements(from, in, first, stride, contributors, begin, n, buffer);
                return buffer;
            };
            detail::encode_message(to, out, where.size(s), {where.index(s), true}, load,
                                   residuals_of(residuals, s, where.begin), at(sums, s, out.bytes));
        });
    }

    template <quantizer From, element T>
    static void reduce_decode(const E& exec, const From& from, const std::byte* messages, int contributors,
                              const slices& where, T* tensor, finish f) {
        enqueue_slots(exec, where, [=](int s) {
            const wire_layout<From> in(where.count);
            const std::size_t stride = static_cast<std::size_t>(where.slots) * in.bytes;
            detail::for_each_piece_on_target<detail::piece_size>(where.size(s), [&](std::size_t begin, auto n) {
                T* const slice = tensor + where.offset(s) + begin;
                float sums[detail::piece_size];
                detail::sum_elements(from, in, at(messages, s, in.bytes), stride, contributors, begin, n, sums);
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
        });
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

private:
    /// load(begin, n, buffer), as encode_message wants it, of the elements from `offset` on.
    template <element T>
    static auto loader(const T* tensor, std::size_t offset) {
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
    static auto loader(const difference<T, Base>& d, std::size_t offset) {
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
    static detail::slot_residuals<Residuals> residuals_of(const Residuals& residuals, int slot, std::size_t begin) {
        if constexpr (std::is_same_v<Residuals, no_feedback>) {
            return {};
        } else {
            return {residuals, slot, begin};
        }
    }

    /// Calls f(slot) for every slot, in the execution's turn.
    template <class F>
    static void enqueue_slots(const E& exec, const slices& where, F f) {
        exec.enqueue([slots = where.slots, f] {
            for (int s = 0; s != slots; ++s) f(s);
        });
    }

    template <class Byte>
    static Byte* at(Byte* messages, int slot, std::size_t bytes) {
        return messages + static_cast<std::size_t>(slot) * bytes;
    }
};

}  // namespace zeropp
