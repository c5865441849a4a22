#pragma once
/// \file
/// What a quantizer may be able to do beyond the arithmetic of single elements, found by concept; and the one way in
/// which codecs, of the host and of GPUs, call quantizers of every ability.

#include <zeropp/core/math.hpp>
#include <zeropp/core/philox.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace zeropp {

/// A quantizer of elements that have been rotated: every whole window of `hadamard_size` consecutive elements of a
/// message, from its start on, goes through a Walsh-Hadamard transform before its block is fitted, and comes back
/// through the inverse. It spreads an outlier over its window. A power of two from 8 to 256, not above the block's
/// size.
///
/// In stages of stride 1, 2, 4, ..., each pair (a, b) becomes (a + b, a - b); then all are multiplied by a power of
/// two, 1 / sqrt(size) or sqrt(2) times that, so that nothing is rounded but the sums. What is left of a message beyond
/// its last whole window is not transformed. Sums of messages are taken in the rotated domain and rotated back once.
template <class Q>
concept rotating_quantizer = quantizer<Q> && requires {
    requires(Q::hadamard_size >= 8 && Q::hadamard_size <= 256 && Q::hadamard_size <= Q::block_size &&
             (Q::hadamard_size & (Q::hadamard_size - 1)) == 0);
};

/// A quantizer that tries several parameters on a block and keeps those of the least error:
///   `candidates`                how many
///   `candidate(fitted, k)`      the k-th to try; 0 is `fitted` itself. NaN stays NaN
///   `error(x, params, fitted)`  how far an element is off with them, in whole units of any size that depend on
///                               `fitted` alone, at most 2^31 / block_size
/// Of candidates with the same sum of errors, the first is kept.
template <class Q>
concept searching_quantizer = quantizer<Q> && requires(const Q& q, const typename Q::params& params, int k, float x) {
    { Q::candidates } -> std::convertible_to<int>;
    { q.candidate(params, k) }
    noexcept->std::same_as<typename Q::params>;
    { q.error(x, params, params) }
    noexcept->std::same_as<std::uint32_t>;
};

/// Noise for eight elements, the first of which has an index that is a multiple of eight: from 16 bits for each.
struct rounding_noise {
    random_words words;

    /// For the i-th of the eight: uniform in steps of 2^-15 over (-1/2, 1/2), both ends excluded, mean 0. Finer steps
    /// would be rounded when added to a code of 8 bits, and take some to the next one.
    constexpr ZEROPP_HOST_DEVICE float at(int i) const noexcept {
        const std::uint32_t bits = words.word[i / 2] >> (i % 2 * 16) & 0xffffu;
        return static_cast<float>(static_cast<std::int32_t>(bits | 1u) - 0x8000) * 0x1p-16f;
    }
};

/// A quantizer that rounds at random: `encode(x, params, noise)` takes a number from (-1/2, 1/2), in steps, and
/// `noise(granule, sum)` are those of elements [8 * granule, 8 * granule + 8) of the whole tensor, `sum` saying whether
/// they are sums of quantized ones (which must not be rounded by the noise that quantized them).
template <class Q>
concept dithering_quantizer = quantizer<Q> &&
    requires(const Q& q, const typename Q::params& params, float x, float noise, std::uint64_t granule, bool sum) {
    { q.encode(x, params, noise) }
    noexcept->std::same_as<std::uint32_t>;
    { q.noise(granule, sum) }
    noexcept->std::same_as<rounding_noise>;
};

/// A quantizer with a number for each message, besides those of its blocks: codecs find the largest finite magnitude of
/// the message's elements, store it behind the parameters, and use `scaled_for(absmax)` for this message on both sides.
/// The one kind of quantizer whose bits depend on how a collective cuts a tensor into messages, and so on its chunks.
template <class Q>
concept message_scaled_quantizer = quantizer<Q> && requires(const Q& q, float absmax) {
    { q.scaled_for(absmax) }
    noexcept->std::same_as<Q>;
};

/// Whether Q is said to be an `integer_quantizer`. Said of each type for itself: one that derives from another may have
/// other arithmetic.
template <class Q>
inline constexpr bool has_integer_arithmetic = false;

/// A quantizer whose codes are integers, as two's complement of `code_bits` bits: codecs may take several at a time.
///   `multiplier(params)`  what a code is multiplied by: `decode` is `product` of the two
///   `highest_code`        `encode` is `nearest_code(x, multiplier, lowest, highest_code)`, where no element of a block
///                         is below `lowest` with the parameters that were fitted to it
///   `stats`               of a block are those of its elements that are farthest from zero on either side
///   `reaches_above`       whether one may be above `highest_code`, by less than 2^31 steps
template <class Q>
concept integer_quantizer =
    quantizer<Q> && has_integer_arithmetic<Q> && Q::code_bits <= 8 && !positional_quantizer<Q> &&
    !message_scaled_quantizer<Q> && requires(const Q& q, const typename Q::params& params) {
    { q.multiplier(params) }
    noexcept->std::same_as<float>;
    { Q::highest_code } -> std::convertible_to<std::int32_t>;
    { Q::reaches_above } -> std::convertible_to<bool>;
};

/// Whether Q is said to be a `float_quantizer`; of each type for itself, as above.
template <class Q>
inline constexpr bool has_float_arithmetic = false;

/// A quantizer whose codes are floats of a `format` (`small_float`): codecs may take several at a time.
///   `multiplier(params)`  what the value of a code is multiplied by: `decode` is `product` of the two
template <class Q>
concept float_quantizer = quantizer<Q> && has_float_arithmetic<Q> && !positional_quantizer<Q> &&
                          !message_scaled_quantizer<Q> && requires(const Q& q, const typename Q::params& params) {
    typename Q::format;
    { q.multiplier(params) }
    noexcept->std::same_as<float>;
};

namespace detail {

/// The calls of codecs. `position` is the element's in its block.
template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE void add_element(typename Q::stats& stats, float x, std::uint32_t position) noexcept {
    if constexpr (positional_quantizer<Q>) {
        stats.add(x, position);
    } else {
        stats.add(x);
    }
}

template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE std::uint32_t encode_element(const Q& q, float x, const typename Q::params& params,
                                                          std::uint32_t position, float noise) noexcept {
    static_assert(!(positional_quantizer<Q> && dithering_quantizer<Q>), "no codec rounds positional codes at random");
    if constexpr (positional_quantizer<Q>) {
        return q.encode(x, params, position);
    } else if constexpr (dithering_quantizer<Q>) {
        return q.encode(x, params, noise);
    } else {
        return q.encode(x, params);
    }
}

template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE float decode_element(const Q& q, std::uint32_t code, const typename Q::params& params,
                                                  std::uint32_t position) noexcept {
    if constexpr (positional_quantizer<Q>) {
        return q.decode(code, params, position);
    } else {
        return q.decode(code, params);
    }
}

/// The window of the rotation; 1 for none.
template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE int rotation_size() {
    if constexpr (rotating_quantizer<Q>) {
        return Q::hadamard_size;
    } else {
        return 1;
    }
}

/// What a rotation multiplies by on the way there, and on the way back: together 1 / Size.
template <int Size>
constexpr ZEROPP_HOST_DEVICE float rotation_scale(bool back) {
    float there = 1.0f;
    int rest = Size;
    for (; rest > 2; rest /= 4) there *= 0.5f;
    return back ? 1.0f / (static_cast<float>(Size) * there) : there;
}

/// `absmax`, taking in |x| where that is finite; bits, so that they merge in any order.
constexpr ZEROPP_HOST_DEVICE inline std::uint32_t take_magnitude(std::uint32_t absmax, float x) noexcept {
    const std::uint32_t magnitude = float_bits(x) & 0x7fffffffu;
    const std::uint32_t finite = magnitude < infinity_bits ? magnitude : 0u;
    return finite > absmax ? finite : absmax;
}

}  // namespace detail

}  // namespace zeropp
