#pragma once
/// \file
/// The codec of CUDA streams. Needs nvcc.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/decode_kernel.cuh>
#include <zeropp/codec/cuda/each_kernel.cuh>
#include <zeropp/codec/cuda/encode_kernel.cuh>
#include <zeropp/codec/cuda/exact_decode_kernel.cuh>
#include <zeropp/codec/cuda/exact_encode_kernel.cuh>
#include <zeropp/codec/cuda/launch.cuh>
#include <zeropp/core/element.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/cuda_stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace zeropp {

/// The codec of a cuda_stream. Each function enqueues a kernel on the caller's stream, and neither allocates nor
/// synchronises. Pointers are to device memory. Messages must begin on 16-byte boundaries; otherwise throws
/// precondition_error. Tensors may begin at any element's address; shards on 16-byte boundaries are faster. If the
/// order of ranks is a table, each range of slots with equal distances between ranks takes one launch. With three
/// levels (nodes in sites), such a range has one slot of each site.
///
/// If residuals are stored with parameters, their blocks must be as large as the quantizer's, and sections must begin
/// with such blocks.
template <>
struct codec<cuda_stream> {
    /// Encodes a tensor, a list of tensors, a difference or a sum of messages into a message for each slot of `where`.
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

    /// Decodes each slot's sum of the messages of `source` into the slot's elements of `tensor`.
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

    /// Encodes the elements of the only slot of `where` as exact differences. Each tile's payload lies in `room` where
    /// the most bytes of all preceding tiles end.
    template <class Tensor, class Base, class Slices>
        requires(detail::exact_element<detail::element_at<Base>>)
    static void write_exact(const cuda_stream& stream, const difference<Tensor, Base>& source, const Slices& where,
                            std::byte* room, std::uint64_t* size) {
        require_aligned(room);
        using kernel = detail::exact_encode_kernel<detail::element_at<Base>, decltype(source_of(source)), Slices>;
        const kernel encode{source_of(source), regular(where), room};
        detail::launch(stream, 1, detail::blocks_of_tiles(encode.layout.tiles), encode);
        detail::launch(stream, 1, 1, detail::exact_ends_kernel{room, encode.layout.tiles, size});
    }

    /// Puts the pieces in `room` together at `message`.
    template <class Slices>
    static void place_exact(const cuda_stream& stream, const Slices& where, const std::byte* room, std::byte* message,
                            std::size_t bytes) {
        require_aligned(room);
        require_aligned(message);
        const detail::exact_place_kernel<Slices> place{regular(where), room, message, bytes};
        detail::launch(stream, 1, std::max<std::size_t>(detail::blocks_of_tiles(place.layout.tiles), 1), place);
    }

    /// Decodes exact differences into each slot's elements of `base`, by `where`. If a tile has other bytes, all
    /// elements of the tile become NaN.
    template <class Slices, class Base>
    static void read_exact(const cuda_stream& stream, const std::byte* messages, std::size_t stride,
                           const Slices& where, Base base) {
        require_aligned(messages);
        for_each_regular(where, [&](const Slices& part, int first) {
            const detail::exact_decode_kernel<detail::element_at<Base>, Slices, Base> decode{
                messages + static_cast<std::size_t>(first) * stride, stride, part, base};
            detail::launch(stream, part.slots, detail::blocks_of_tiles(decode.layout.tiles), decode);
        });
    }

    /// Calls f(i) on the GPU for every i < n, in any order.
    template <class F>
    static void each(const cuda_stream& stream, std::size_t n, const F& f) {
        using kernel = detail::each_kernel<F>;
        detail::launch(stream, 1, kernel::tiles(n), kernel{f, n});
    }

private:
    /// Throws precondition_error unless `messages` is on a 16-byte boundary, as the wide loads of kernels require. A
    /// misaligned load would make the CUDA context unusable.
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

    /// Address of slot `first`'s message in `messages`, which begins with the message of slot 0.
    template <quantizer Q, class Byte, class Slices>
    static Byte* message_of(const Q& q, Byte* messages, const Slices& where, int first) {
        return messages + static_cast<std::size_t>(first) * wire_bytes(q, where.last_count(), where.last());
    }

    /// Residuals of the slots from `first` on, as kernels take them: none.
    static detail::kernel_residuals<none> residuals_from(const none&, int) { return {}; }
    /// Residuals of the slots from `first` on, as kernels take them. `f` begins with the residuals of slot 0.
    template <quantizer Storage>
    static detail::kernel_residuals<feedback<Storage>> residuals_from(feedback<Storage> f, int first) {
        const std::size_t before = static_cast<std::size_t>(first) * wire_bytes(f.storage, f.slice, f.last);
        if (f.previous != nullptr) f.previous += before;
        f.next += before;
        return {f};
    }

    /// Calls f(source) with the source that kernels read for a tensor, a list of tensors or a difference.
    template <class Tensor, class Slices, class F>
    static void with_source(const Tensor& tensor, const Slices&, int, F f) {
        f(source_of(tensor));
    }
    /// Calls f(source) with the source that kernels read for sums of messages, for slots from `first` on. Sums over 1,
    /// 2, 4 and 8 contributors have separate kernels, which start the loads of all contributors at once.
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

    /// The only slot of `where`, by an order that kernels can read.
    template <class Slices>
    static Slices regular(const Slices& where) {
        return where.even_slots(0, 1, 0);
    }

    /// Calls f(part, first) with elements `part` of slots that begin with slot `first`. Calls it once, with all slots,
    /// unless the order of ranks is a table, which kernels cannot read. Then each range of slots with equal distances
    /// between ranks takes one call.
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
