#pragma once
/// \file
/// Every kind of `block_integer`, with its independent description.

#include <zeropp/quantizer/block_integer.hpp>

#include "conformance/quantizer_laws.hpp"
#include "support/reference.hpp"

#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp_test {

template <class Scheme>
inline constexpr scheme scheme_named = std::is_same_v<Scheme, zeropp::symmetric>       ? scheme::symmetric
                                       : std::is_same_v<Scheme, zeropp::signed_absmax> ? scheme::signed_absmax
                                                                                       : scheme::asymmetric;
template <class Number>
inline constexpr floating_format format_of = std::is_same_v<Number, zeropp::half>       ? fp16_format
                                             : std::is_same_v<Number, zeropp::bfloat16> ? bf16_format
                                                                                        : fp32_format;

struct integer_model {
    quantizer_model quantizer;
    reference_format reference;
};

template <int Bits, int BlockSize, class Scheme, class Scale>
integer_model describe_integer() {
    return {describe<zeropp::block_integer<Bits, BlockSize, Scheme, Scale>>(),
            {scheme_named<Scheme>, Bits, BlockSize, format_of<Scale>}};
}

/// Models of 2 to 8 bits.
template <int BlockSize, class Scheme, class Scale>
std::vector<integer_model> integer_models() {
    return []<int... I>(std::integer_sequence<int, I...>) {
        return std::vector<integer_model>{describe_integer<I + 2, BlockSize, Scheme, Scale>()...};
    }(std::make_integer_sequence<int, 7>{});
}

}  // namespace zeropp_test
