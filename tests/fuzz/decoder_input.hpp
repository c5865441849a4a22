#pragma once
/// \file
/// What the input of the decoder's fuzz target means: messages of slices of a tensor, as they come from other ranks.

#include "fuzz/reader.hpp"

#include <zeropp/core/element.hpp>
#include <zeropp/layout/exact_differences.hpp>
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
    std::uint8_t quantizer;  // in the order of fuzzed_quantizers, and behind them exact differences of bf16 and fp16
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

    /// Slices in blocks of `block` elements, as a collective's chunks are, of a tensor of at most `most` elements.
    zeropp::slices where(std::size_t block, std::size_t most = 3000) const {
        const zeropp::partition part(elements % (most + 1), 1 + ranks % 3);
        const std::size_t blocks = part.slice_size() / block;
        const std::size_t first = begin % (blocks + 1) * block;
        const std::size_t left = part.slice_size() - first;
        return {part,        zeropp::slice_order{.groups = part.ranks()}, first, std::min<std::size_t>(count, left), 0,
                part.ranks()};
    }

    /// Slices for exact differences, of several tiles.
    zeropp::slices where_exact() const { return where(zeropp::exact_differences::tile_size, 20000); }
    /// Bytes from one message of exact differences to the next one: the most, or fewer.
    std::size_t exact_stride() const {
        return zeropp::format_of<zeropp::exact_differences>.bytes(where_exact().count) * (256u - contributors) / 256;
    }
    /// Old elements, which exact differences change: small numbers and, in between, any bits.
    template <class T>
    static std::vector<T> old_elements(std::size_t n) {
        std::vector<T> old(n);
        for (std::size_t i = 0; i != n; ++i) {
            const float weight = 0.001f * static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
            old[i] = i % 29 == 0 ? T::from_bits(static_cast<std::uint16_t>(i * 40503u))
                                 : zeropp::element_traits<T>::from_float(weight);
        }
        return old;
    }
};

}  // namespace zeropp_test
