#pragma once
/// \file
/// What the input of the decoder's fuzz target means: messages of slices of a tensor, as they come from other ranks.

#include "fuzz/reader.hpp"

#include <zeropp/layout/slices.hpp>
#include <zeropp/quantizer/named.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace zeropp_test {

/// One of each width, scheme, type of scale and packing: each costs ten seconds of compilation.
using fuzzed_quantizers = zeropp::named_quantizers<
    zeropp::cast_to<float>, zeropp::cast_to<zeropp::bfloat16>, zeropp::block_integer<8, 256>,
    zeropp::block_integer<6, 128, zeropp::symmetric, zeropp::half>, zeropp::quantizer_named<"int4:128:signed:bf16:h32">,
    zeropp::block_integer<4, 128, zeropp::asymmetric, zeropp::half>, zeropp::quantizer_named<"int2:64:signed:bf16:h32">,
    zeropp::block_float<zeropp::e5m2, 128>, zeropp::mxfp6<zeropp::e2m3>, zeropp::mxfp4,
    zeropp::hadamard<zeropp::lloyd_max<3, 128>, 128>>;

/// What is done with the messages.
enum class decoding { to_fp32, to_fp16, to_bf16, sums, encoded_sums };
inline constexpr std::size_t decodings = 5;

/// The front of the input; behind it are the messages.
struct decoder_input {
    std::uint8_t quantizer;  // in the order of fuzzed_quantizers
    std::uint8_t what;
    std::uint8_t ranks;
    std::uint8_t contributors;
    std::uint16_t elements;  // of the tensor
    std::uint16_t begin;     // of each slice, in blocks
    std::uint16_t count;

    static decoder_input take(reader& input) {
        decoder_input d;
        d.quantizer = input.take<std::uint8_t>();
        d.what = input.take<std::uint8_t>();
        d.ranks = input.take<std::uint8_t>();
        d.contributors = input.take<std::uint8_t>();
        d.elements = input.take<std::uint16_t>();
        d.begin = input.take<std::uint16_t>();
        d.count = input.take<std::uint16_t>();
        return d;
    }

    std::vector<std::uint8_t> bytes() const {
        std::vector<std::uint8_t> all{quantizer, what, ranks, contributors};
        for (const std::uint16_t number : {elements, begin, count}) {
            all.push_back(static_cast<std::uint8_t>(number & 0xff));
            all.push_back(static_cast<std::uint8_t>(number >> 8));
        }
        return all;
    }

    decoding operation() const { return static_cast<decoding>(what % decodings); }
    int number_of_contributors() const { return 1 + contributors % 3; }
    /// Half of the sums are added to a tensor.
    bool accumulates() const { return what / decodings % 2 != 0; }

    /// Slices in blocks of `block` elements, as a collective's chunks are.
    zeropp::slices where(std::size_t block) const {
        constexpr std::size_t most_elements = 3000;
        const zeropp::partition part(elements % (most_elements + 1), 1 + ranks % 3);
        const std::size_t blocks = part.slice_size() / block;
        const std::size_t first = begin % (blocks + 1) * block;
        const std::size_t left = part.slice_size() - first;
        return {part,        zeropp::slice_order{.groups = part.ranks()}, first, std::min<std::size_t>(count, left), 0,
                part.ranks()};
    }
};

}  // namespace zeropp_test
