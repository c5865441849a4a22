#pragma once
/// \file
/// The codec of CUDA streams. Needs nvcc.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/decode_kernel.cuh>
#include <zeropp/codec/cuda/encode_kernel.cuh>
#include <zeropp/codec/cuda/launch.cuh>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/cuda_stream.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace zeropp {

/// One kernel for each operation, on the caller's stream: no allocation, no synchronisation. Pointers are device memory;
/// messages start on 16-byte boundaries, tensors anywhere, with the fast path where a slice starts on a 16-byte boundary.
template <>
struct codec<cuda_stream> {
    template <quantizer Q, element T>
    static void encode(const cuda_stream& stream, const Q& q, const T* tensor, const slices& where,
                       std::byte* messages) {
        for_each_regular(where, [&](const slices& part, int first) {
            encode_from(stream, q, detail::tensor_source<T>{tensor}, part,
                        messages + static_cast<std::size_t>(first) * wire_bytes(q, where.count));
        });
    }

    template <quantizer Q, element T>
    static void decode(const cuda_stream& stream, const Q& q, const std::byte* messages, const slices& where,
                       T* tensor) {
        reduce_decode(stream, q, messages, 1, where, tensor, finish{});
    }

    template <quantizer From, quantizer To>
    static void reduce_encode(const cuda_stream& stream, const From& from, const std::byte* messages, int contributors,
                              const slices& where, const To& to, std::byte* sums) {
        for_each_regular(where, [&](const slices& part, int first) {
            with_sums(from, messages, contributors, where, first, [&](const auto& source) {
                encode_from(stream, to, source, part,
                            sums + static_cast<std::size_t>(first) * wire_bytes(to, where.count));
            });
        });
    }

    template <quantizer From, element T>
    static void reduce_decode(const cuda_stream& stream, const From& from, const std::byte* messages, int contributors,
                              const slices& where, T* tensor, finish last) {
        // The reciprocal of a power of two is exact, and so multiplying by it rounds the same number as dividing.
        const std::uint32_t divisor = float_bits(last.divisor);
        const bool power_of_two = (divisor & 0x007fffffu) == 0 && last.divisor >= 1.0f && last.divisor <= 0x1p64f;
        const float exact_reciprocal = power_of_two ? 1.0f / last.divisor : 0.0f;
        for_each_regular(where, [&](const slices& part, int first) {
            with_sums(from, messages, contributors, where, first, [&]<class Source>(const Source& source) {
                using kernel = detail::decode_kernel<Source, T>;
                detail::launch(stream, part.slots, kernel::units(part.count),
                               kernel{source, part, tensor, last, exact_reciprocal});
            });
        });
    }

private:
    template <quantizer Q, class Source>
    static void encode_from(const cuda_stream& stream, const Q& q, const Source& source, const slices& where,
                            std::byte* messages) {
        using kernel = detail::encode_kernel<Q, Source>;
        detail::launch(stream, where.slots, kernel::units(where.count), kernel{q, source, where, messages});
    }

    /// Calls f with the source of sums over `contributors`, from slot `first` on. The usual numbers of ranks in a node
    /// are instances of their own, whose loads all start at once.
    template <quantizer From, class F>
    static void with_sums(const From& from, const std::byte* messages, int contributors, const slices& where, int first,
                          F f) {
        const std::byte* start = messages + static_cast<std::size_t>(first) * wire_bytes(from, where.count);
        switch (contributors) {
        case 1:
            return f(detail::sum_source<From, 1>{{from, start, 1, where.slots}});
        case 2:
            return f(detail::sum_source<From, 2>{{from, start, 2, where.slots}});
        case 4:
            return f(detail::sum_source<From, 4>{{from, start, 4, where.slots}});
        case 8:
            return f(detail::sum_source<From, 8>{{from, start, 8, where.slots}});
        default:
            return f(detail::sum_source<From, 0>{{from, start, contributors, where.slots}});
        }
    }

    /// Calls f with slices that a kernel can read, and with their first slot: all of them at once, or, where a table
    /// in host memory says the order, one by one.
    template <class F>
    static void for_each_regular(const slices& where, F f) {
        if (where.order.table == nullptr) return f(where, 0);
        for (int s = 0; s != where.slots; ++s) {
            const int rank = where.order.rank(where.first_slot + s);
            f(slices{where.part, slice_order{}, where.begin, where.count, rank, 1}, s);
        }
    }
};

}  // namespace zeropp
