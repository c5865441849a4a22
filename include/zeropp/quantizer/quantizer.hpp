#pragma once
/// \file
/// The quantizer concept: the meaning of a message's bytes.

#include <zeropp/core/element.hpp>
#include <zeropp/core/text.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp {

/// A quantizer that needs each element's position in its block: it has `stats.add(x, position)`, `encode(x, params,
/// position)` and `decode(code, params, position)` in place of the functions without it.
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

/// Arithmetic on one block of elements, without loops over tensors or memory access. A quantizer is a small trivially
/// copyable value. Every function is noexcept and ZEROPP_HOST_DEVICE, except `name`, which is host only:
///   `block_size`          elements that share parameters: a power of two from 8 to 65536
///   `code_bits`           bits of one code: 1 to 8, 16 or 32; codes are packed densely, the first in the lowest bits
///   `params`              stored for each block; trivially copyable, an empty type takes no bytes
///   `stats`               data of a block for `fit`. Default-constructed, it describes no element; `add(x)` takes in
///                         one element, `merge(s)` the elements of another one. Commutative and associative to the bit,
///                         so that any number of lanes can share a block
///   `fit(stats)`          the block's parameters
///   `encode(x, params)`   the code of one element in the low `code_bits` bits, the others zero
///   `decode(code, params)` the value of a code
///   `name()`              the text by which programs choose it, as in quantizer/named.hpp
/// Concepts in quantizer/abilities.hpp describe further abilities.
/// Laws: a block that holds NaN or Inf decodes to NaN, unless a code stands for its element alone, as in `lossless`. A
/// block of zeros decodes to zeros.
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

/// A quantizer that states its largest error: `error_bound(x, params)` bounds |decode(encode(x)) - x| for an element x
/// of a block with these parameters.
template <class Q>
concept bounded_quantizer = quantizer<Q> && requires(const Q& q, const typename Q::params& params, float x) {
    { q.error_bound(x, params) }
    noexcept->std::same_as<float>;
};

}  // namespace zeropp
