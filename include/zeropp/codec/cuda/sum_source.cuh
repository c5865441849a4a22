#pragma once
/// \file
/// Sources of values for the kernels that are sums of messages.

#include <zeropp/codec/cuda/codes.cuh>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/granule_codec.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>

namespace zeropp::detail {

/// The codes of one granule in one message, and the parameters of its block.
template <quantizer Q>
struct coded_granule {
    packed_codes<Q::code_bits> codes;
    typename Q::params params;

    /// Loads granule number `granule` of a section, of which the message has `elements` elements, 0 to 8.
    template <class Cursor>
    __device__ static coded_granule load(const Cursor& s, std::size_t granule, int elements) {
        const typename Q::params params = load_params(s, granule);
        return {load_codes_of<Q>(s.codes, granule, elements), params};
    }

    /// Address of the parameters for granule `granule` of a section.
    template <class Cursor>
    __device__ static const std::byte* params_of(const Cursor& s, std::size_t granule) {
        constexpr std::size_t block_granules = Q::block_size / granule_size;
        return s.params + granule / block_granules * params_bytes<Q>;
    }

    /// Loads the parameters for granule `granule` of a section.
    template <class Cursor>
    __device__ static typename Q::params load_params(const Cursor& s, std::size_t granule) {
        if constexpr (params_bytes<Q> != 0) {
            return *reinterpret_cast<const typename Q::params*>(params_of(s, granule));
        } else {
            return {};
        }
    }

    __device__ void add_to(float (&sum)[granule_size], const Q& q) const {
        decode_granule(q, codes, params, [&](int i, float x) { sum[i] += x; });
    }
};

/// Sums of a granule before the first message: zeros that keep the bits of a value that is added. They are -0, or +0
/// for integer codes, since a code times its block's multiplier is never -0.
template <quantizer Q>
__device__ float_granule no_sums() {
    constexpr float nothing = integer_quantizer<Q> ? 0.0f : -0.0f;
    float_granule s;
#pragma unroll
    for (int i = 0; i != granule_size; ++i) s.x[i] = nothing;
    return s;
}

/// Adds decoded granules to sums[k], for each k < `Run`: coded(c, k) for c = 0, 1, ..., `Messages` - 1, in this order.
/// Of message c, that is the k-th of `Run` successive granules of one block. `Begin`: `sums` are as `no_sums` returns
/// them. Steps of integers are multiplied by `scale`. All threads of a warp must call this together.
template <int Messages, int Run, bool Begin, quantizer Q, class Coded>
__device__ void add_messages(const Q& q, Coded coded, float_granule* sums, [[maybe_unused]] float scale = 1.0f) {
    if constexpr (integer_quantizer<Q>) {
        const integer_converter<Q::code_bits> integers(threadIdx.x);
#pragma unroll
        for (int c = 0; c != Messages; ++c) {
            const float multiplier = q.multiplier(coded(c, 0).params) * scale;
#pragma unroll
            for (int k = 0; k != Run; ++k) {
                integers.convert(coded(c, k).codes, [&](int i, int j, float x, float y) {
                    float& a = sums[k].x[i];
                    float& b = sums[k].x[j];
                    if constexpr (Begin) {
                        // A code times its block's multiplier never underflows. With +0 added, fused or not, the
                        // product is never -0.
                        if (c == 0) {
                            a = fused(x, multiplier, 0.0f);
                            b = fused(y, multiplier, 0.0f);
                            return;
                        }
                    }
                    if constexpr (has_exact_products<Q>) {
                        add_exact_products(a, b, x, y, multiplier);
                    } else {
                        add_products(a, b, x, y, multiplier);
                    }
                });
            }
        }
    } else {
#pragma unroll
        for (int k = 0; k != Run; ++k) {
#pragma unroll
            for (int c = 0; c != Messages; ++c) coded(c, k).add_to(sums[k].x, q);
        }
    }
}

/// Base class of the sources that are sums of messages: finds and loads a slot's messages, one from each contributor.
template <quantizer From>
struct message_source {
    From from;
    const std::byte* messages;
    int contributors;
    wire_layout<From> layout;
    /// Number of bytes from a slot's message of one contributor to that slot's message of the next contributor.
    std::size_t stride;
    float divisor;
    /// 1 / divisor, for divisions by multiplication.
    inverse by{divisor};

    static constexpr bool sums = true;
    static constexpr bool integers = false;
    static constexpr int rotation = rotation_size<From>();
    static constexpr auto block_size = static_cast<std::size_t>(From::block_size);
    static constexpr int together = granules_together<From> * granule_size < From::block_size
                                        ? granules_together<From>
                                        : From::block_size / granule_size;
    /// Number of registers to convert integer codes to floats, four at a time; 0 if codes are no integers.
    static constexpr int integer_words = integer_quantizer<From> ? 8 : 0;
    /// Number of registers for a coded granule. A block's parameters count once for `together` successive granules,
    /// which share them.
    static constexpr int coded_words =
        packed_codes<From::code_bits>::words +
        static_cast<int>(ceil_div((sizeof(coded_granule<From>) - sizeof(packed_codes<From::code_bits>)) / 4, together));

    /// A section in one contributor's message.
    struct cursor {
        const std::byte* codes;   // address of the first code
        const std::byte* params;  // address of the first block's parameters
        std::size_t elements;     // number of elements
    };

    /// The section in the first contributor's message.
    template <class Slices>
    __device__ cursor open(const Slices&, const section& of, std::size_t, int s) const {
        const std::byte* const message = messages + static_cast<std::size_t>(s) * layout.bytes;
        return {message + layout.codes_at(of.place), message + layout.params_at(of.place), of.count};
    }

    /// The same section in the next contributor's message.
    __device__ cursor next(const cursor& s) const { return {s.codes + stride, s.params + stride, s.elements}; }

    static constexpr bool moves = !ternary_quantizer<From>;

    __device__ static cursor moved(const cursor& s, std::size_t granules) {
        return {kept_address(s.codes + granules * From::code_bits),
                kept_address(coded_granule<From>::params_of(s, granules)), s.elements};
    }

    /// Divides the eight sums `x` by `divisor`. Rotated sums must have been rotated back.
    __device__ void finish(float (&x)[granule_size]) const { divide(x, divisor, by); }

    /// Loads the whole granules granule(n), n < N, of `Messages` messages from `s` on, and calls use(c, n, granule) for
    /// message c. Leaves `s` at the next message. Each `Run` granules in a row are of one block.
    template <int Messages, int Run, std::size_t N, class Granule, class Use>
    __device__ void load(cursor& s, Granule granule, Use use) const {
#pragma unroll
        for (int c = 0; c != Messages; ++c) {
#pragma unroll
            for (std::size_t n = 0; n != N; n += Run) {
                if constexpr (Run == 1) {
                    use(c, n, coded_granule<From>::load(s, granule(n), granule_size));
                } else {
                    coded_granule<From> g{{}, coded_granule<From>::load_params(s, granule(n))};
                    const auto run = code_run<From::code_bits, Run>::load(s.codes + granule(n) * From::code_bits);
#pragma unroll
                    for (std::size_t k = 0; k != Run; ++k) {
                        g.codes = run.at(static_cast<int>(k));
                        use(c, n + k, g);
                    }
                }
            }
            s = next(s);
        }
    }

    __device__ float_granule fragment_part(cursor s, std::size_t granule, int valid) const {
        if (valid == 0) return {};
        float_granule values = no_sums<From>();
#pragma unroll 1
        for (int c = 0; c != contributors; ++c) {
            coded_granule<From>::load(s, granule, valid_elements(s.elements, granule)).add_to(values.x, from);
            s = next(s);
        }
        return values;
    }
};

/// Source (see sources.cuh) of sums: for each slot, the messages of all contributors, added in the contributors' order.
/// `Contributors` is the number of contributors; 0 if it is known at run time only.
template <quantizer From, int Contributors>
struct sum_source : message_source<From> {
    using typename message_source<From>::cursor;

    struct raw {
        coded_granule<From> of[std::size_t{Contributors}];
    };
    using fragment = float_granule;
    static constexpr int loaded_bytes = Contributors * From::code_bits;
    static constexpr int scratch_words =
        message_source<From>::integer_words + (message_source<From>::rotation > 1 ? granule_size : 0);
    static constexpr int loaded_words = Contributors * message_source<From>::coded_words;
    /// True if there is `has_ordinary_steps`, which would take more instructions of many messages than it saves.
    static constexpr bool integers = integer_quantizer<From> && Contributors <= 4;

    /// Loads granule number granule(n) of all contributors' messages into r[n], for each n < N.
    template <int Run, std::size_t N, class Granule>
    __device__ void fetch_whole(cursor s, Granule granule, raw (&r)[N]) const {
        this->template load<Contributors, Run, N>(
            s, granule, [&](int c, std::size_t n, const coded_granule<From>& g) { r[n].of[c] = g; });
    }
    /// Makes fragments of sums, or of sums times `scale`, a power of two other than 1 only if `has_ordinary_steps`.
    template <int Run>
    __device__ void fragments(const raw* r, fragment* f, float scale = 1.0f) const {
#pragma unroll
        for (int k = 0; k != Run; ++k) f[k] = no_sums<From>();
        add_messages<Contributors, Run, true>(
            this->from, [=](int c, int k) -> const coded_granule<From>& { return r[k].of[c]; }, f, scale);
    }
    /// True if all messages' steps for granule `r` are so ordinary that sums and rotations of their multiples may be
    /// multiplied by a power of two before or after: then no sum is a denormal, Inf or -0.
    __device__ bool has_ordinary_steps(const raw& r) const {
        bool all = true;
#pragma unroll
        for (int c = 0; c != Contributors; ++c) all = all && is_ordinary(this->from.multiplier(r.of[c].params));
        return all;
    }
};

/// Source of sums over any number of messages: loads and adds four messages at a time, then the rest one by one.
template <quantizer From>
struct sum_source<From, 0> : message_source<From> {
    using typename message_source<From>::cursor;

    using raw = float_granule;
    using fragment = raw;
    /// Sums need the registers that addresses of moved sections take.
    static constexpr bool moves = false;
    /// Number of granules in a row for a thread, at most 2: the sums of all stay in registers while codes are loaded.
    static constexpr int together = message_source<From>::together < 2 ? message_source<From>::together : 2;
    static constexpr int in_flight = 4;
    static constexpr int loaded_bytes = in_flight * From::code_bits;
    /// Number of registers to convert codes, and for the codes of four messages while the next four are loaded.
    static constexpr int scratch_words =
        2 * in_flight * message_source<From>::coded_words + message_source<From>::integer_words;
    static constexpr int loaded_words = granule_size + in_flight * message_source<From>::coded_words;

    template <int Run, std::size_t N, class Granule>
    __device__ void fetch_whole(cursor s, Granule granule, raw (&r)[N]) const {
#pragma unroll
        for (std::size_t n = 0; n != N; ++n) r[n] = no_sums<From>();
        int c = 0;
        for (; c + in_flight <= this->contributors; c += in_flight) add<in_flight, Run>(s, granule, r);
        for (; c < this->contributors; ++c) add<1, Run>(s, granule, r);
    }
    template <int Run>
    __device__ static void fragments(const raw* r, fragment* f) {
#pragma unroll
        for (int k = 0; k != Run; ++k) f[k] = r[k];
    }

private:
    /// Adds granule(n) of `Messages` messages, from `s` on, to r[n]. Leaves `s` at the next message.
    template <int Messages, int Run, std::size_t N, class Granule>
    __device__ void add(cursor& s, Granule granule, raw (&r)[N]) const {
        coded_granule<From> coded[std::size_t{Messages}][N];
        this->template load<Messages, Run, N>(
            s, granule, [&](int c, std::size_t n, const coded_granule<From>& g) { coded[c][n] = g; });
#pragma unroll
        for (std::size_t n = 0; n != N; n += Run) {
            add_messages<Messages, Run, false>(
                this->from,
                [&](int c, int k) -> const coded_granule<From>& { return coded[c][n + static_cast<std::size_t>(k)]; },
                r + n);
        }
    }
};

}  // namespace zeropp::detail
