#pragma once
/// \file
/// Where the kernels get values from that are sums of messages.

#include <zeropp/codec/cuda/codes.cuh>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/slices.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// What the whole of a message says of each of its elements.
template <quantizer Q>
struct loaded_scale {
    __device__ static loaded_scale load(const std::byte*, std::size_t) { return {}; }
    __device__ const Q& apply(const Q& q) const { return q; }
};
template <message_scaled_quantizer Q>
struct loaded_scale<Q> {
    float absmax;

    __device__ static loaded_scale load(const std::byte* message, std::size_t scale_offset) {
        return {*reinterpret_cast<const float*>(message + scale_offset)};
    }
    __device__ Q apply(const Q& q) const { return q.scaled_for(absmax); }
};

/// The codes of one granule in one message, the parameters of its block, and the scale of the message if it has one.
template <quantizer Q>
struct coded_granule : loaded_scale<Q> {
    packed_codes<Q::code_bits> codes;
    typename Q::params params;

    /// Of a message that holds `elements` of the granule's elements.
    template <class Cursor>
    __device__ static coded_granule load(const std::byte* message, const Cursor& s, std::size_t granule, int elements) {
        constexpr std::size_t block_granules = Q::block_size / granule_size;
        coded_granule g;
        static_cast<loaded_scale<Q>&>(g) = loaded_scale<Q>::load(message, s.scale_offset);
        g.codes = load_codes<Q::code_bits>(message + granule * Q::code_bits, elements);
        if constexpr (params_bytes<Q> != 0) {
            g.params = *reinterpret_cast<const typename Q::params*>(message + s.params_offset +
                                                                    granule / block_granules * params_bytes<Q>);
        }
        return g;
    }

    __device__ void add_to(float (&sum)[granule_size], const Q& q, std::size_t granule) const {
        const Q& own = this->apply(q);
        const auto position = static_cast<std::uint32_t>(granule * granule_size % Q::block_size);
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            sum[i] += decode_element(own, codes.at(i), params, position + static_cast<std::uint32_t>(i));
        }
    }
};

/// A sum of floats to begin with: what leaves every first value as it is.
__device__ inline void set_to_nothing(float (&sum)[granule_size]) {
#pragma unroll
    for (int i = 0; i != granule_size; ++i) sum[i] = -0.0f;
}

/// What the sources over messages have in common: where a slot's messages lie. Offsets are from the codes of a section.
template <quantizer From>
struct message_source {
    From from;
    const std::byte* messages;
    int contributors;
    int slots;

    static constexpr bool sums = true;
    static constexpr int rotation = rotation_size<From>();
    static constexpr auto block_size = static_cast<std::size_t>(From::block_size);

    struct cursor {
        const std::byte* first;
        std::size_t stride;
        std::size_t params_offset;
        std::size_t scale_offset;
        std::size_t elements;
        static constexpr bool aligned = true;
    };

    template <class Slices>
    __device__ cursor open(const Slices& where, const section& of, std::size_t, int s) const {
        const wire_layout<From> layout(where.last_count(), where.last());
        const std::size_t codes = layout.codes_at(of.place);
        return {messages + static_cast<std::size_t>(s) * layout.bytes + codes,
                static_cast<std::size_t>(slots) * layout.bytes, layout.params_at(of.place) - codes,
                layout.scale_offset - codes, of.count};
    }
};

/// Sums, in order, of the values of `Contributors` messages for each slot; 0 where the number is known at run time
/// only.
template <quantizer From, int Contributors>
struct sum_source : message_source<From> {
    using typename message_source<From>::cursor;

    struct raw {
        coded_granule<From> of[std::size_t{Contributors}];
    };
    struct fragment {
        float sum[granule_size];
    };
    static constexpr int loaded_bytes = Contributors * From::code_bits;
    static constexpr int scratch_words = 0;
    static constexpr int loaded_words = static_cast<int>(sizeof(raw) / 4);

    /// r[n] <- granule(n).
    template <std::size_t N, class Granule>
    __device__ void fetch_whole(const cursor& s, Granule granule, raw (&r)[N]) const {
        fetch(s, granule, granule_size, r);
    }
    __device__ raw fetch_part(const cursor& s, std::size_t granule, int valid) const {
        raw r[1]{};
        if (valid != 0)
            fetch(
                s, [=](std::size_t) { return granule; }, valid_elements(s.elements, granule), r);
        return r[0];
    }
    __device__ fragment fragment_of(const raw& r, std::size_t granule) const {
        fragment k;
        values(r, granule, k.sum);
        return k;
    }
    __device__ void values(const raw& r, std::size_t granule, float (&x)[granule_size]) const {
        set_to_nothing(x);
#pragma unroll
        for (int c = 0; c != Contributors; ++c) r.of[c].add_to(x, this->from, granule);
    }
    __device__ static void values(const fragment& k, float (&x)[granule_size]) {
#pragma unroll
        for (int i = 0; i != granule_size; ++i) x[i] = k.sum[i];
    }

private:
    template <std::size_t N, class Granule>
    __device__ static void fetch(const cursor& s, Granule granule, int elements, raw (&r)[N]) {
        const std::byte* message = s.first;
#pragma unroll
        for (int c = 0; c != Contributors; ++c) {
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) {
                r[n].of[c] = coded_granule<From>::load(message, s, granule(n), elements);
            }
            message += s.stride;
        }
    }
};

/// Four messages at a time, and then what is left one by one.
template <quantizer From>
struct sum_source<From, 0> : message_source<From> {
    using typename message_source<From>::cursor;

    struct raw {
        float sum[granule_size];
    };
    using fragment = raw;
    static constexpr int in_flight = 4;
    static constexpr int loaded_bytes = in_flight * From::code_bits;
    static constexpr int scratch_words = 0;
    static constexpr int loaded_words = granule_size + in_flight * static_cast<int>(sizeof(coded_granule<From>) / 4);

    template <std::size_t N, class Granule>
    __device__ void fetch_whole(const cursor& s, Granule granule, raw (&r)[N]) const {
        sum<in_flight>(s, granule, granule_size, r);
    }
    __device__ raw fetch_part(const cursor& s, std::size_t granule, int valid) const {
        raw r[1]{};
        if (valid != 0)
            sum<1>(
                s, [=](std::size_t) { return granule; }, valid_elements(s.elements, granule), r);
        return r[0];
    }
    __device__ static const fragment& fragment_of(const raw& r, std::size_t) { return r; }
    __device__ static void values(const raw& r, std::size_t, float (&x)[granule_size]) { values(r, x); }
    __device__ static void values(const fragment& k, float (&x)[granule_size]) {
#pragma unroll
        for (int i = 0; i != granule_size; ++i) x[i] = k.sum[i];
    }

private:
    template <int InFlight, std::size_t N, class Granule>
    __device__ void sum(const cursor& s, Granule granule, int elements, raw (&r)[N]) const {
#pragma unroll
        for (std::size_t n = 0; n != N; ++n) set_to_nothing(r[n].sum);
        const std::byte* message = s.first;
        int c = 0;
        for (; c + InFlight <= this->contributors; c += InFlight) add<InFlight>(s, message, granule, elements, r);
        if constexpr (InFlight > 1) {
            for (; c < this->contributors; ++c) add<1>(s, message, granule, elements, r);
        }
    }

    /// Adds `Messages` of them, and moves on to the next.
    template <int Messages, std::size_t N, class Granule>
    __device__ void add(const cursor& s, const std::byte*& message, Granule granule, int elements, raw (&r)[N]) const {
        coded_granule<From> coded[std::size_t{Messages}][std::size_t{N}];
#pragma unroll
        for (int c = 0; c != Messages; ++c) {
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) {
                coded[c][n] = coded_granule<From>::load(message, s, granule(n), elements);
            }
            message += s.stride;
        }
#pragma unroll
        for (std::size_t n = 0; n != N; ++n) {
#pragma unroll
            for (int c = 0; c != Messages; ++c) coded[c][n].add_to(r[n].sum, this->from, granule(n));
        }
    }
};

/// A source of sums that are divided once they are rotated back.
template <class Source>
struct divided_source : Source {
    float divisor;
    /// 1 / divisor where that is exact, so that multiplying gives the bits of the division; otherwise 0.
    float exact_reciprocal;

    __device__ void epilogue(float (&x)[granule_size]) const { divide(x, divisor, exact_reciprocal); }
};

}  // namespace zeropp::detail
