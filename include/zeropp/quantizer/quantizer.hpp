#pragma once
/// \file
/// The quantizer concept, and concepts of the abilities that a quantizer may have.

#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/text.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace zeropp {

/// Arithmetic on one block of elements, without loops over tensors or memory access. A quantizer is a small trivially
/// copyable value. Every function is noexcept and ZEROPP_HOST_DEVICE, except `name`, which is host only:
///   `block_size`          elements that share parameters: a power of two from 8 to 65536
///   `code_bits`           bits of one code: 1 to 8, 16 or 32; codes are packed densely, the first in the lowest bits,
///                         unless Q is a `ternary_quantizer`
///   `params`              stored for each block; trivially copyable and default-constructible; an empty type takes no
///                         bytes. Without padding, of which messages would carry any bytes
///   `stats`               data of a block for `fit`. Default-constructed, it describes no element; `add(x)` takes in
///                         one element, `merge(s)` the elements that s describes. Commutative and associative to the
///                         bit, so that any number of threads can share a block
///   `fit(stats)`          the block's parameters
///   `encode(x, params)`   the code of one element in the low `code_bits` bits, the others zero
///   `decode(code, params)` the value of a code
///   `name()`              the text by which programs choose the quantizer, as in quantizer/named.hpp
/// The concepts below describe further abilities.
/// Laws: a block that holds NaN or Inf decodes to NaN, unless a code stands for its element alone, as in `cast_to`. A
/// block of zeros decodes to zeros.
template <class Q>
concept quantizer = std::is_trivially_copyable_v<Q> && std::is_trivially_copyable_v<typename Q::params> &&
                    std::is_trivially_copyable_v<typename Q::stats> && std::default_initializable<typename Q::params> &&
                    std::default_initializable<typename Q::stats> &&
                    (Q::block_size >= 8 && Q::block_size <= 65536 && (Q::block_size & (Q::block_size - 1)) == 0) &&
                    ((Q::code_bits >= 1 && Q::code_bits <= 8) || Q::code_bits == 16 || Q::code_bits == 32) &&
                    requires(const Q& q, typename Q::stats stats, const typename Q::stats& other,
                             const typename Q::params& params, float x, std::uint32_t code) {
                        { stats.add(x) } noexcept;
                        { stats.merge(other) } noexcept;
                        { q.fit(other) } noexcept -> std::same_as<typename Q::params>;
                        { q.encode(x, params) } noexcept -> std::same_as<std::uint32_t>;
                        { q.decode(code, params) } noexcept -> std::same_as<float>;
                        { q.name() } -> std::convertible_to<short_text>;
                    };

/// A quantizer that states its largest error: `error_bound(x, params)` bounds |decode(encode(x)) - x| for an element x
/// of a block with these parameters.
template <class Q>
concept bounded_quantizer = quantizer<Q> && requires(const Q& q, const typename Q::params& params, float x) {
    { q.error_bound(x, params) } noexcept -> std::same_as<float>;
};

/// A quantizer with three codes, 0, 1 and 2, packed five to a byte: 26 bytes for 128 elements, instead of 32.
/// `code_bits` is 2, and `ternary` is true. The first code of a byte is its lowest digit to base 3. Every 128 elements,
/// or every block if blocks are smaller, begin with a byte. Bytes from 243 on are read as if they were 243 less.
template <class Q>
concept ternary_quantizer = quantizer<Q> && Q::code_bits == 2 && requires { requires Q::ternary; };

/// A quantizer of rotated elements. Every whole window of `hadamard_size` consecutive elements goes through a
/// Walsh-Hadamard transform before its block is fitted, and through the inverse when decoded. That spreads an outlier
/// over its window. Windows begin with a block; `hadamard_size` is a power of two from 8 to 256, not above the block's
/// size.
///
/// In stages of stride 1, 2, 4, ..., each pair (a, b) of values a stride apart becomes (a + b, a - b). Then all values
/// are multiplied by a power of two, 1 / sqrt(size) or sqrt(2 / size), so that only sums are rounded. Elements after
/// the last whole window are not transformed. Messages are summed as rotated values. A sum that is encoded with windows
/// of the same size stays rotated; any other sum is rotated back once.
template <class Q>
concept rotating_quantizer = quantizer<Q> && requires {
    requires(Q::hadamard_size >= 8 && Q::hadamard_size <= 256 && Q::hadamard_size <= Q::block_size &&
             (Q::hadamard_size & (Q::hadamard_size - 1)) == 0);
};

/// A quantizer that fits a block in two passes over its elements, the second relative to the parameters of the first:
///   `sums`                data of a block for `refit`. Default-constructed, it describes no element; `add(x, params)`
///                         takes in one element, `merge(s)` the elements that s describes. `params` come from
///                         `fit`. Commutative and associative to the bit, as `stats` are
///   `refit(params, sums)` the block's parameters
template <class Q>
concept refitting_quantizer =
    quantizer<Q> && std::is_trivially_copyable_v<typename Q::sums> && std::default_initializable<typename Q::sums> &&
    requires(const Q& q, const typename Q::params& params, typename Q::sums sums, const typename Q::sums& other,
             float x) {
        { sums.add(x, params) } noexcept;
        { sums.merge(other) } noexcept;
        { q.refit(params, other) } noexcept -> std::same_as<typename Q::params>;
    };

/// Random bits for stochastic rounding of eight consecutive elements, 16 bits for each.
struct rounding_noise {
    random_words words;

    /// Noise of the i-th element: uniform in steps of 2^-15 over (-1/2, 1/2), both ends excluded, mean 0. Finer noise
    /// would be rounded when it is added to a code of 8 bits, and could then reach the next code.
    constexpr ZEROPP_HOST_DEVICE float at(int i) const noexcept {
        const std::uint32_t bits = words.word[i / 2] >> (i % 2 * 16) & 0xffffu;
        return static_cast<float>(static_cast<std::int32_t>(bits | 1u) - 0x8000) * 0x1p-16f;
    }
};

/// A quantizer that rounds at random. `encode(x, params, noise)` takes `noise` from (-1/2, 1/2). `noise(granule, sum)`
/// returns the noise of elements [8 * granule, 8 * granule + 8) of the whole tensor. `sum` is true for sums of
/// quantized elements, because noise that has quantized the elements must not round their sum.
template <class Q>
concept stochastic_quantizer = quantizer<Q> && requires(const Q& q, const typename Q::params& params, float x,
                                                        float noise, std::uint64_t granule, bool sum) {
    { q.encode(x, params, noise) } noexcept -> std::same_as<std::uint32_t>;
    { q.noise(granule, sum) } noexcept -> std::same_as<rounding_noise>;
};

/// Phase of a step in which values are rounded. A later phase rounds results of an earlier phase again, and must not
/// use the noise of that phase.
///   `reduction`  of gradients, and of their sums between nodes
///   `gather`     an all-gather, the all-gather phase of an all-reduce, and an update
///   `copy`       of a secondary partition or replica, or of a mirror
///   3, 4, ...    along level 2, 3, ... of a reduction: sums of sums that `reduction` has rounded
enum class noise_phase { reduction, gather, copy };

/// A stochastic_quantizer with other noise in each phase: `enter(phase)` changes the noise from that of `reduction`.
/// Collectives call `enter` once, on a copy of their argument.
template <class Q>
concept phased_quantizer = stochastic_quantizer<Q> && requires(Q& q, noise_phase phase) {
    { q.enter(phase) } noexcept;
};

namespace detail {
/// q with the noise of `phase`; q unchanged if it has no noise, or equal noise in all phases.
template <quantizer Q>
Q in_phase(Q q, [[maybe_unused]] noise_phase phase) {
    if constexpr (phased_quantizer<Q>) q.enter(phase);
    return q;
}

/// Phase of the sums that a reduction sends along `level`.
constexpr noise_phase phase_of_sums(int level) {
    return level < 2 ? noise_phase::reduction
                     : static_cast<noise_phase>(static_cast<int>(noise_phase::copy) + level - 1);
}
}  // namespace detail

/// True if Q declares itself an `integer_quantizer`. A derived type must declare this again, since it may have other
/// arithmetic.
template <class Q>
inline constexpr bool has_integer_arithmetic = false;

/// A quantizer with integer codes, as two's complement of `code_bits` bits. Codecs may process several at a time.
///   `multiplier(params)`  the factor of a code: `decode` returns product(code, multiplier)
///   `highest_code`        the highest code: `encode` is `nearest_code(x, multiplier, lowest, highest_code)` for some
///                         `lowest`. In a block that `params` were fitted to, no element needs a lower code
///   `stats`               depend only on the elements of a block that are farthest from zero on either side
///   `reaches_above`       true if an element may need a code above `highest_code`, by less than 2^14
template <class Q>
concept integer_quantizer = quantizer<Q> && has_integer_arithmetic<Q> && Q::code_bits <= 8 &&
                            requires(const Q& q, const typename Q::params& params) {
                                { q.multiplier(params) } noexcept -> std::same_as<float>;
                                { Q::highest_code } -> std::convertible_to<std::int32_t>;
                                { Q::reaches_above } -> std::convertible_to<bool>;
                            };

/// True if Q declares itself a `float_quantizer`. A derived type must declare this again, since it may have other
/// arithmetic.
template <class Q>
inline constexpr bool has_float_arithmetic = false;

/// A quantizer with codes that are floats of a `format` (`small_float`). Codecs may process several at a time.
///   `multiplier(params)`  the factor of a code's value: `decode` returns product(value, multiplier)
template <class Q>
concept float_quantizer =
    quantizer<Q> && has_float_arithmetic<Q> && requires(const Q& q, const typename Q::params& params) {
        typename Q::format;
        { q.multiplier(params) } noexcept -> std::same_as<float>;
    };

/// True if Q declares that its codes are elements T, unchanged and without parameters. Collectives then send and
/// receive whole tensors without a copy. A NaN may keep its payload.
template <class Q, class T>
inline constexpr bool stores_elements = false;

namespace detail {

/// The code of an element x. Only a `stochastic_quantizer` uses `noise`, from (-1/2, 1/2).
template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE std::uint32_t encode_element(const Q& q, float x, const typename Q::params& params,
                                                          [[maybe_unused]] float noise) noexcept {
    if constexpr (stochastic_quantizer<Q>) {
        return q.encode(x, params, noise);
    } else {
        return q.encode(x, params);
    }
}

/// Number of elements of a rotation's window; 1 without rotation.
template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE int rotation_size() {
    if constexpr (rotating_quantizer<Q>) {
        return Q::hadamard_size;
    } else {
        return 1;
    }
}

/// Factor after the stages of a rotation of `Size` elements or, if `back`, of its inverse. The two factors multiply to
/// 1 / Size. Requires `Size` to be a power of two.
template <int Size>
constexpr ZEROPP_HOST_DEVICE float rotation_scale(bool back) {
    float there = 1.0f;
    int rest = Size;
    for (; rest > 2; rest /= 4) there *= 0.5f;
    return back ? 1.0f / (static_cast<float>(Size) * there) : there;
}

/// A quantizer for values that are rotated already: encodes and decodes as Q does, without a rotation.
template <rotating_quantizer Q>
struct on_rotated_values : Q {
    static constexpr int hadamard_size = 1;
};

/// `type` is a quantizer that encodes and decodes rotated values as Q does, without a rotation. An object is made of a
/// Q.
template <rotating_quantizer Q>
struct unrotated : std::type_identity<on_rotated_values<Q>> {};

}  // namespace detail

template <class Q>
inline constexpr bool has_integer_arithmetic<detail::on_rotated_values<Q>> = has_integer_arithmetic<Q>;
template <class Q>
inline constexpr bool has_float_arithmetic<detail::on_rotated_values<Q>> = has_float_arithmetic<Q>;

}  // namespace zeropp
