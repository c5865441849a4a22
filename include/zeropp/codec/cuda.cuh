#pragma once
/// \file
/// The codec of CUDA streams. Needs nvcc.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/decode_kernel.cuh>
#include <zeropp/codec/cuda/encode_kernel.cuh>
#include <zeropp/codec/cuda/launch.cuh>
#include <zeropp/codec/cuda/message_scale.cuh>
#include <zeropp/codec/cuda/squared_error_kernel.cuh>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/cuda_stream.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace zeropp {

/// One kernel for each operation, and two more before it where messages have a scale, on the caller's stream: no
/// allocation, no synchronisation. Pointers are device memory; messages start on 16-byte boundaries, tensors anywhere,
/// with the fast path where a slice starts on a 16-byte boundary.
///
/// Residuals are stored without parameters, or with those of blocks as large as the quantizer's; `where.begin` is then a
/// multiple of the block's size.
template <>
struct codec<cuda_stream> {
    template <quantizer Q, class Tensor, class Residuals = no_feedback>
    static void encode(const cuda_stream& stream, const Q& q, const Tensor& tensor, const slices& where,
                       std::byte* messages, const Residuals& residuals = {}) {
        for_each_regular(where, [&](const slices& part, int first) {
            encode_from(stream, q, source_of(tensor), part, message_of(q, messages, where.count, first),
                        residuals_from(residuals, first));
        });
    }

    template <quantizer Q, element T>
    static void decode(const cuda_stream& stream, const Q& q, const std::byte* messages, const slices& where,
                       T* tensor) {
        reduce_decode(stream, q, messages, 1, where, tensor, finish{});
    }

    template <quantizer From, quantizer To, class Residuals = no_feedback>
    static void reduce_encode(const cuda_stream& stream, const From& from, const std::byte* messages, int contributors,
                              const slices& where, const To& to, std::byte* sums, const Residuals& residuals = {}) {
        for_each_regular(where, [&](const slices& part, int first) {
            with_sums(from, messages, contributors, where, first, [&](const auto& source) {
                encode_from(stream, to, source, part, message_of(to, sums, where.count, first),
                            residuals_from(residuals, first));
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

    template <element T>
    static void squared_error(const cuda_stream& stream, const T* tensor, const float* decoded, std::size_t n,
                              double* energies) {
        detail::launch(stream, 1, 1, detail::squared_error_kernel<T>{tensor, decoded, n, energies});
    }

private:
    template <quantizer Q, class Source, class Residuals>
    static void encode_from(const cuda_stream& stream, const Q& q, const Source& source, const slices& where,
                            std::byte* messages, const detail::kernel_residuals<Residuals>& residuals) {
        static_assert(detail::storage_fits<Q, Residuals>::value,
                      "residuals on GPUs need a storage without parameters, or with the quantizer's block size");
        if constexpr (message_scaled_quantizer<Q>) {
            using clear = detail::clear_scale_kernel<Q>;
            detail::launch(stream, 1, clear::units(where.slots), clear{where, messages});
            using find = detail::find_scale_kernel<Q, Source, detail::kernel_residuals<Residuals>>;
            detail::launch(stream, where.slots, find::units(where.count), find{source, where, messages, residuals});
        }
        using kernel = detail::encode_kernel<Q, Source, detail::kernel_residuals<Residuals>>;
        detail::launch(stream, where.slots, kernel::units(where.count), kernel{q, source, where, messages, residuals});
    }

    template <element T>
    static detail::tensor_source<T> source_of(const T* tensor) {
        return {tensor};
    }
    template <element T, element Base>
    static detail::difference_source<T, Base> source_of(const difference<T, Base>& d) {
        return {d.tensor, d.base};
    }

    /// The message of slot `first`.
    template <quantizer Q, class Byte>
    static Byte* message_of(const Q& q, Byte* messages, std::size_t elements, int first) {
        return messages + static_cast<std::size_t>(first) * wire_bytes(q, elements);
    }

    /// The residuals of the slots from `first` on.
    static detail::kernel_residuals<no_feedback> residuals_from(const no_feedback&, int) { return {}; }
    template <quantizer Storage>
    static detail::kernel_residuals<feedback<Storage>> residuals_from(feedback<Storage> f, int first) {
        if (f.held != nullptr) f.held = message_of(f.storage, f.held, f.slice, first);
        f.kept = message_of(f.storage, f.kept, f.slice, first);
        return {f};
    }

    /// Calls f with the source of sums over `contributors`, from slot `first` on. The usual numbers of ranks in a node
    /// are instances of their own, whose loads all start at once.
    template <quantizer From, class F>
    static void with_sums(const From& from, const std::byte* messages, int contributors, const slices& where, int first,
                          F f) {
        const std::byte* start = message_of(from, messages, where.count, first);
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
            f(slices{where.part, slice_order{}, where.begin, where.count, rank, 1, where.origin}, s);
        }
    }
};

}  // namespace zeropp
