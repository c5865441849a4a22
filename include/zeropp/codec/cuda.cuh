#pragma once
/// \file
/// The codec of CUDA streams. Needs nvcc.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/decode_kernel.cuh>
#include <zeropp/codec/cuda/each_kernel.cuh>
#include <zeropp/codec/cuda/encode_kernel.cuh>
#include <zeropp/codec/cuda/launch.cuh>
#include <zeropp/core/element.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/cuda_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace zeropp {

/// One kernel for each operation, on the caller's stream: no allocation, no synchronisation. Pointers are device
/// memory. Messages start on 16-byte boundaries, otherwise precondition_error is thrown. Tensors start anywhere; a
/// shard on a 16-byte boundary takes the fast path. If a table gives the order of ranks, each range of slots with equal
/// distances between ranks is a launch of its own: for three levels, the slots of all sites.
///
/// Residuals have no parameters, or blocks as large as the quantizer's, of which `where.begin` is then a multiple.
template <>
struct codec<cuda_stream> {
    template <quantizer Q, class Source, class Slices, class Residuals = none>
    static void write(const cuda_stream& stream, const Q& q, const Source& source, const Slices& where,
                      std::byte* messages, const Residuals& residuals = {}) {
        require_aligned(messages);
        static_assert(detail::kernel_residuals<Residuals>::template fit_blocks_of<Q>,
                      "residuals on GPUs need a storage without parameters, or with the quantizer's block size");
        detail::without_shared_rotation(q, source, [&](const auto& to, const auto& from) {
            write_values(stream, to, from, where, messages, residuals);
        });
    }

    template <quantizer Q, class Tensor, class Slices>
    static void read(const cuda_stream& stream, const message_sum<Q>& source, const Slices& where, const Tensor& tensor,
                     epilogue last = {}) {
        require_aligned(source.messages);
        using T = std::remove_pointer_t<decltype(detail::tensor_at(tensor, 0))>;
        for_each_regular(where, [&](const Slices& part, int first) {
            with_source(source, where, first, [&]<class From>(const From& from) {
                using kernel = detail::decode_kernel<From, T, Slices, Tensor>;
                detail::launch(stream, part.slots, kernel::tiles(part), kernel{from, part, tensor, last});
            });
        });
    }

    template <class F>
    static void each(const cuda_stream& stream, std::size_t n, const F& f) {
        using kernel = detail::each_kernel<F>;
        detail::launch(stream, 1, kernel::tiles(n), kernel{f, n});
    }

private:
    /// Throws precondition_error unless kernels can load whole words from the messages. A kernel that cannot would end
    /// the CUDA context.
    static void require_aligned(const std::byte* messages) {
        const std::size_t off = reinterpret_cast<std::uintptr_t>(messages) % workspace_alignment;
        if (off == 0) return;
        throw precondition_error("codec", "messages aligned to " + std::to_string(workspace_alignment) + " bytes",
                                 "some that start " + std::to_string(off) + " bytes past a boundary");
    }

    template <quantizer Q, class Source, class Slices, class Residuals>
    static void write_values(const cuda_stream& stream, const Q& q, const Source& source, const Slices& where,
                             std::byte* messages, const Residuals& residuals) {
        using kept = detail::kernel_residuals<Residuals>;
        for_each_regular(where, [&](const Slices& part, int first) {
            std::byte* const to = message_of(q, messages, where, first);
            const kept old = residuals_from(residuals, first);
            with_source(source, where, first, [&]<class From>(const From& from) {
                using kernel = detail::encode_kernel<Q, From, kept, Slices>;
                detail::launch(stream, part.slots, kernel::tiles(part), kernel{q, from, part, to, old});
            });
        });
    }

    template <element T>
    static detail::tensor_source<T> source_of(const T* tensor) {
        return {tensor};
    }
    template <class T>
    static detail::tensor_source<std::remove_const_t<T>, tensor_table<const T>> source_of(const tensor_table<T>& list) {
        return {{list.tensors}};
    }
    template <class Tensor, class Base>
    static auto source_of(const difference<Tensor, Base>& d) {
        using tensor = decltype(source_of(d.tensor));
        using base = decltype(source_of(d.base));
        return detail::difference_source<tensor, base>{source_of(d.tensor), source_of(d.base)};
    }

    /// Message of slot `first`.
    template <quantizer Q, class Byte, class Slices>
    static Byte* message_of(const Q& q, Byte* messages, const Slices& where, int first) {
        return messages + static_cast<std::size_t>(first) * wire_bytes(q, where.last_count(), where.last());
    }

    /// Residuals of the slots from `first` on.
    static detail::kernel_residuals<none> residuals_from(const none&, int) { return {}; }
    template <quantizer Storage>
    static detail::kernel_residuals<feedback<Storage>> residuals_from(feedback<Storage> f, int first) {
        const std::size_t before = static_cast<std::size_t>(first) * wire_bytes(f.storage, f.slice, f.last);
        if (f.previous != nullptr) f.previous += before;
        f.next += before;
        return {f};
    }

    /// Calls f(source of the kernels) for slots from `first` on. Usual numbers of ranks in a node have instances of
    /// their own, in which all loads start at once.
    template <class Tensor, class Slices, class F>
    static void with_source(const Tensor& tensor, const Slices&, int, F f) {
        f(source_of(tensor));
    }
    template <quantizer Q, class Slices, class F>
    static void with_source(const message_sum<Q>& sum, const Slices& where, int first, F f) {
        const wire_layout<Q> layout(where.last_count(), where.last());
        const std::size_t stride = static_cast<std::size_t>(where.slots) * layout.bytes;
        const std::byte* const messages = message_of(sum.quantizer, sum.messages, where, first);
        const detail::message_source<Q> source{sum.quantizer, messages, sum.contributors, layout, stride, sum.divisor};
        switch (sum.contributors) {
        case 1:
            return f(detail::sum_source<Q, 1>{source});
        case 2:
            return f(detail::sum_source<Q, 2>{source});
        case 4:
            return f(detail::sum_source<Q, 4>{source});
        case 8:
            return f(detail::sum_source<Q, 8>{source});
        default:
            return f(detail::sum_source<Q, 0>{source});
        }
    }

    /// Calls f(slices, their first slot): once for all slots or, if the order is a table in host memory, which kernels
    /// cannot read, for each range of slots with equal distances between ranks.
    template <class Slices, class F>
    static void for_each_regular(const Slices& where, F f) {
        if (where.order.table == nullptr) return f(where, 0);
        for (int s = 0, n = 1; s != where.slots; s += n) {
            const int apart = s + 1 != where.slots ? where.rank(s + 1) - where.rank(s) : 0;
            for (n = 1; s + n != where.slots && where.rank(s + n) == where.rank(s) + n * apart;) ++n;
            f(where.even_slots(s, n, apart), s);
        }
    }
};

}  // namespace zeropp
