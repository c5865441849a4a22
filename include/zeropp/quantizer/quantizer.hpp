#pragma once
/// \file
/// The quantizer concept: what the bytes of a message mean.

#include <zeropp/core/element.hpp>
#include <zeropp/core/text.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp {

/// A quantizer whose arithmetic wants to know where in its block an element is: `stats.add(x, position)`,
/// `encode(x, params, position)` and `decode(code, params, position)`, in place of those without.
template <class Q>
concept positional_quantizer = requires(const Q& q, typename Q::stats stats, const typename Q::params& params, float x,
                                        std::uint32_t code, std::uint32_t position) {
    { stats.add(x, position) }
    noexcept;
    { q.encode(x, params, position) }
    noexcept->std::same_as<std::uint32_t>;
    { q.decode(code, params, position) }
    noexcept->std::same_as<float>;
};

namespace detail {
template <class Q>
concept encodes_elements = positional_quantizer<Q> ||
    requires(const Q& q, typename Q::stats stats, const typename Q::params& params, float x, std::uint32_t code) {
    { stats.add(x) }
    noexcept;
    { q.encode(x, params) }
    noexcept->std::same_as<std::uint32_t>;
    { q.decode(code, params) }
    noexcept->std::same_as<float>;
};
}  // namespace detail

/// Arithmetic on one block of elements; no loops over tensors, no memory access. A quantizer is a small trivially
/// copyable value and every function is noexcept and ZEROPP_HOST_DEVICE (except `name`, which is host only):
///   `block_size`          elements that share parameters: a power of two from 8 to 65536
///   `code_bits`           bits of one code: 1 to 8, 16 or 32; codes are packed densely, first in the lowest bits
///   `params`              what is stored for each block; trivially copyable, an empty type takes no bytes
///   `stats`               what `fit` needs to know of a block. Default-constructed it describes no element;
///                         `add(x)` takes in one element and `merge(s)` the elements of another. Commutative and
///                         associative to the bit, so that any number of lanes can share a block
///   `fit(stats)`          the block's parameters
///   `encode(x, params)`   the code of one element, in the low `code_bits` bits, the others zero
///   `decode(code, params)` the value that a code stands for
///   `name()`              the text by which programs choose it, as in `named`
/// What a quantizer may be able to do beyond that, codecs find by the concepts in quantizer/abilities.hpp.
/// Laws: a block that holds NaN or Inf decodes to NaN (unless a code stands for its element alone, as in `lossless`);
/// a block of zeros decodes to zeros.
template <class Q>
concept quantizer = std::is_trivially_copyable_v<Q> && std::is_trivially_copyable_v<typename Q::params> &&
                    std::is_trivially_copyable_v<typename Q::stats> && std::default_initializable<typename Q::stats> &&
                    (Q::block_size >= 8 && Q::block_size <= 65536 && (Q::block_size & (Q::block_size - 1)) == 0) &&
                    ((Q::code_bits >= 1 && Q::code_bits <= 8) || Q::code_bits == 16 || Q::code_bits == 32) &&
                    detail::encodes_elements<Q>&& requires(const Q& q, typename Q::stats stats,
                                                           const typename Q::stats& other) {
    { stats.merge(other) }
    noexcept;
    { q.fit(other) }
    noexcept->std::same_as<typename Q::params>;
    { q.name() } -> std::convertible_to<short_text>;
};

/// A quantizer that also states how far it can be off: `error_bound(x, params)` is the most that
/// |decode(encode(x)) - x| can be for an element x of a block with these parameters.
template <class Q>
concept bounded_quantizer = quantizer<Q> && requires(const Q& q, const typename Q::params& params, float x) {
    { q.error_bound(x, params) }
    noexcept->std::same_as<float>;
};

}  // namespace zeropp
