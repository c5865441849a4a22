#pragma once
/// \file
/// Quantizers and element types that the benchmarks are compiled with.

#include <zeropp/core/error.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/quantizer/named.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace zeropp_bench {

/// Quantizers that -q may name. Pairs are compiled too, so the list is short.
using bench_quantizers =
    zeropp::named_quantizers<zeropp::quantizer_named<"fp32">, zeropp::quantizer_named<"bf16">,
                             zeropp::quantizer_named<"int8:256">, zeropp::quantizer_named<"int8:2048">,
                             zeropp::quantizer_named<"int4:128">, zeropp::quantizer_named<"int4:128:signed:bf16">>;

/// Quantizers of codec_perf, for which only codec passes are compiled, and exact differences.
using codec_quantizers = zeropp::named_quantizers<
    zeropp::quantizer_named<"int8:256">, zeropp::quantizer_named<"int4:128">,
    zeropp::quantizer_named<"int4:128:signed:bf16:h32">, zeropp::quantizer_named<"fp8_e4m3:128">,
    zeropp::quantizer_named<"mxfp4">, zeropp::quantizer_named<"int2:64:signed:bf16:h32">,
    zeropp::quantizer_named<"lloyd2:128:unbiased:h128">, zeropp::quantizer_named<"lloyd3:128:h128">,
    zeropp::quantizer_named<"lloyd4:128:h128">, zeropp::exact_differences>;

/// Name of an element type in -d and the column "type", as in nccl-tests.
template <class T>
inline constexpr std::string_view datatype = "float";
template <>
inline constexpr std::string_view datatype<zeropp::half> = "half";
template <>
inline constexpr std::string_view datatype<zeropp::bfloat16> = "bfloat16";

/// Calls f(T{}) for the element type `name`. Returns false, without a call, if there is none.
template <class F>
bool with_datatype(std::string_view name, F f) {
    const auto matches = [&]<class T>(T element) {
        if (name != datatype<T>) return false;
        f(element);
        return true;
    };
    return matches(float{}) || matches(zeropp::half{}) || matches(zeropp::bfloat16{});
}

/// Quantizers of the two hops: "INSIDE+ACROSS", or one name for both. Only useful pairs are compiled: equal ones, or
/// intra-node bf16 or int8:256 with fewer inter-node bits.
struct hop_quantizers {
    bench_quantizers::variant intra_node;
    bench_quantizers::variant inter_node;

    /// Throws precondition_error with the valid names, or the rule for pairs.
    static hop_quantizers parse(std::string_view text) {
        const std::size_t plus = std::min(text.find('+'), text.size());
        const std::string_view last = plus == text.size() ? text : text.substr(plus + 1);
        const hop_quantizers q{bench_quantizers::parse(text.substr(0, plus)), bench_quantizers::parse(last)};
        if (!q.visit([](const auto&, const auto&) {})) {
            throw zeropp::precondition_error("quantizers of the two hops",
                                             "both alike, or bf16 or int8:256 inside nodes and fewer bits across",
                                             "\"" + q.name() + "\"");
        }
        return q;
    }

    /// Calls f(intra_node, inter_node). Returns false, without a call, if the pair is not compiled.
    template <class F>
    bool visit(F f) const {
        return std::visit(
            [&]<class IntraNode, class InterNode>(const IntraNode& in, const InterNode& out) {
                constexpr bool wide = std::is_same_v<IntraNode, zeropp::cast_to<zeropp::bfloat16>> ||
                                      std::is_same_v<IntraNode, zeropp::block_integer<8, 256>>;
                constexpr bool compiled =
                    std::is_same_v<IntraNode, InterNode> || (wide && InterNode::code_bits < IntraNode::code_bits);
                if constexpr (compiled) f(in, out);
                return compiled;
            },
            intra_node, inter_node);
    }

    std::string name() const { return bench_quantizers::name(intra_node) + "+" + bench_quantizers::name(inter_node); }
};

}  // namespace zeropp_bench
