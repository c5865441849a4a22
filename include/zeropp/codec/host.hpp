#pragma once
/// \file
/// The codec of host executions.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host_blocks.hpp>
#include <zeropp/codec/host_changes.hpp>
#include <zeropp/codec/host_message.hpp>
#include <zeropp/core/changes.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>

#include <cstddef>
#include <cstdint>
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
template <class T, class Base>
auto loader(const difference<T*, Base*>& d, std::size_t offset) {
    return [=](std::size_t begin, auto n, float* buffer) -> const float* {
        const T* const slice = d.tensor + offset + begin;
        const Base* const base = d.base + offset + begin;
        for (std::size_t i = 0; i != n; ++i) {
            buffer[i] = element_traits<std::remove_const_t<T>>::to_float(slice[i]) -
                        element_traits<std::remove_const_t<Base>>::to_float(base[i]);
        }
        return buffer;
    };
}

template <quantizer Q, class Slices>
wire_layout<Q> layout_of(const Slices& where) {
    return wire_layout<Q>(where.last_count(), where.last());
}

template <quantizer Q, class Tensor, class Slices, class Residuals>
void encode_slots(Q q, Tensor tensor, const Slices& where, std::byte* messages, Residuals residuals) {
    const auto load_of = [&](const section& of, std::size_t i, int s) {
        return loader(tensor_at(tensor, where.tensor(i)), of.offset(where.in_memory(s)));
    };
    encode_messages(q, layout_of<Q>(where), where, false, load_of, residuals, messages);
}

/// to <- `size` elements of a section of a message.
template <quantizer Q, element T>
void decode_section(const Q& q, const coded_section& from, std::size_t size, T* to) {
    for_each_piece_on_target<piece_size, piece_size>(size, [&](std::size_t begin, auto n) {
        T* const slice = to + begin;
        if (decode_by_table(q, from, begin, n, slice)) return;
        if constexpr (std::is_same_v<T, float>) {
            decode_elements(q, from, begin, n, [=](std::size_t i, float x) { slice[i] = x; });
            rotate<Q>(slice, n, true);
        } else {
            // In two loops, which compilers turn into vector code where they do not one with both conversions.
            float values[piece_size];
            decode_elements(q, from, begin, n, [&](std::size_t i, float x) { values[i] = x; });
            rotate<Q>(values, n, true);
            for (std::size_t i = 0; i != n; ++i) slice[i] = element_traits<T>::from_float(values[i]);
        }
    });
}

/// to <- finish of `size` sums of elements of a section of `contributors` messages.
template <quantizer From, element T>
void reduce_section(const From& from, const coded_section& first, std::size_t stride, int contributors,
                    std::size_t size, finish f, T* to) {
    for_each_piece_on_target<piece_size, piece_size>(size, [&](std::size_t begin, auto n) {
        T* const slice = to + begin;
        float sums[piece_size];
        sum_elements(from, first, stride, contributors, begin, n, sums);
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

/// write(a section of a slot's message, how many elements it has, where they begin in memory) for every section of
/// every slot that has elements, in the order of memory.
template <quantizer Q, class Tensor, class Slices, class Write>
void for_each_section(const wire_layout<Q>& layout, const std::byte* messages, const Slices& where, Tensor tensor,
                      Write write) {
    for (std::size_t i = 0; i != where.sections(); ++i) {
        const section of = where.at(i);
        for_each_slot_in_memory(where, [&](int s) {
            const std::size_t size = of.size(where.rank(s));
            if (size == 0) return;
            write(coded_section(layout, of.place, message_at(messages, s, layout.bytes)), size,
                  tensor_at(tensor, where.tensor(i)) + of.offset(where.in_memory(s)));
        });
    }
}

template <quantizer Q, class Tensor, class Slices>
void decode_slots(Q q, const std::byte* messages, const Slices& where, Tensor tensor) {
    for_each_section(layout_of<Q>(where), messages, where, tensor,
                     [&](const coded_section& from, std::size_t size, auto* to) {
                         decode_section(quantizer_of(q, from), from, size, to);
                     });
}

template <quantizer From, quantizer To, class Slices, class Residuals, class Mean>
void reduce_encode_slots(From from, const std::byte* messages, int contributors, const Slices& where, To to,
                         std::byte* sums, Residuals residuals, [[maybe_unused]] Mean mean) {
    const auto in = layout_of<From>(where);
    const std::size_t stride = static_cast<std::size_t>(where.slots) * in.bytes;
    const auto load_of = [&](const section& of, std::size_t, int s) {
        const coded_section first(in, of.place, message_at(messages, s, in.bytes));
        return [=](std::size_t begin, auto n, float* buffer) -> const float* {
            sum_elements(from, first, stride, contributors, begin, n, buffer);
            if constexpr (std::is_same_v<Mean, divided_by>) {
                for (std::size_t i = 0; i != n; ++i) buffer[i] = quotient(buffer[i], mean.divisor);
            }
            return buffer;
        };
    };
    encode_messages(to, layout_of<To>(where), where, true, load_of, residuals, sums);
}

template <quantizer From, class Tensor, class Slices>
void reduce_decode_slots(From from, const std::byte* messages, int contributors, const Slices& where, Tensor tensor,
                         finish f) {
    const auto layout = layout_of<From>(where);
    const std::size_t stride = static_cast<std::size_t>(where.slots) * layout.bytes;
    for_each_section(layout, messages, where, tensor, [&](const coded_section& first, std::size_t size, auto* to) {
        reduce_section(from, first, stride, contributors, size, f, to);
    });
}

}  // namespace detail

/// Runs on one thread, in the execution's turn, with the widest vectors that the processor has, whatever the program is
/// compiled for. Forms no pointer into `tensor` for a slot without elements, whose offset may lie beyond the tensor's
/// end; so `tensor` may be null where no slot has any.
template <host_execution E>
struct codec<E> {
    template <quantizer Q, class Tensor, class Slices, class Residuals = no_feedback>
    static void encode(const E& exec, const Q& q, const Tensor& tensor, const Slices& where, std::byte* messages,
                       const Residuals& residuals = {}) {
        exec.enqueue([=] { detail::encode_slots(q, tensor, where, messages, residuals); });
    }

    template <quantizer Q, class Tensor, class Slices>
    static void decode(const E& exec, const Q& q, const std::byte* messages, const Slices& where, Tensor tensor) {
        exec.enqueue([=] { detail::decode_slots(q, messages, where, tensor); });
    }

    template <quantizer From, quantizer To, class Slices, class Residuals = no_feedback, class Mean = undivided>
    static void reduce_encode(const E& exec, const From& from, const std::byte* messages, int contributors,
                              const Slices& where, const To& to, std::byte* sums, const Residuals& residuals = {},
                              const Mean& mean = {}) {
        exec.enqueue(
            [=] { detail::reduce_encode_slots(from, messages, contributors, where, to, sums, residuals, mean); });
    }

    template <quantizer From, class Tensor, class Slices>
    static void reduce_decode(const E& exec, const From& from, const std::byte* messages, int contributors,
                              const Slices& where, Tensor tensor, finish f) {
        exec.enqueue([=] { detail::reduce_decode_slots(from, messages, contributors, where, tensor, f); });
    }

    template <class Tensor, class Base, class Slices>
    static void count_changes(const E& exec, const difference<Tensor, Base>& d, const Slices& where,
                              std::uint64_t* changes) {
        exec.enqueue([=] { detail::count_changes_of(d, where, changes); });
    }

    template <class Tensor, class Base, class Slices>
    static void encode_changes(const E& exec, const difference<Tensor, Base>& d, const Slices& where,
                               const changes_layout& layout, std::byte* message) {
        exec.enqueue([=] { detail::encode_changes_of(d, where, layout, message); });
    }

    template <class Tensor, class Slices>
    static void decode_changes(const E& exec, const std::byte* messages, const changes_layout& layout,
                               const Slices& where, Tensor tensor) {
        exec.enqueue([=] { detail::decode_changes_of(messages, layout, where, tensor); });
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
