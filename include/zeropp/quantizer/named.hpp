#pragma once
/// \file
/// Quantizers by name, so that programs can choose at run time among compiled instances.

#include <zeropp/core/error.hpp>
#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/hops.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>
#include <zeropp/quantizer/stochastic.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace zeropp {

namespace detail {

/// A quantizer's `name` with its defaults in their places behind format and block: the scheme "symmetric" of integers,
/// and the scale "fp32" of integers and of small floats.
inline std::string with_defaults(std::string_view name) {
    std::string spelt(name);
    std::size_t end = std::min(name.find(':'), name.size());
    if (end == name.size()) return spelt;
    end = std::min(name.find(':', end + 1), name.size());
    // Passes over the field behind `end`, or puts the first of `words` there if the field is none of them.
    const auto pass = [&](std::initializer_list<std::string_view> words) {
        const std::size_t begin = std::min(end + 1, spelt.size());
        const std::string field = spelt.substr(begin, spelt.find(':', begin) - begin);
        if (std::ranges::find(words, field) == words.end()) spelt.insert(end, ":").insert(end + 1, *words.begin());
        end = std::min(spelt.find(':', end + 1), spelt.size());
    };
    const bool integers = name.starts_with("int");
    if (integers) pass({"symmetric", "signed", "asymmetric"});
    if (integers || name.starts_with("fp")) pass({"fp32", "fp16", "bf16"});
    return spelt;
}

/// Type with a name, by which programs choose among formats: a quantizer, or exact_differences.
template <class Q>
concept named = requires(const Q& q) {
    { q.name() } -> std::convertible_to<short_text>;
};

}  // namespace detail

/// Names of a set of compiled quantizers.
///
/// A name is FORMAT[:BLOCK][:SCHEME][:SCALE][:ABILITY...], for instance "int8:256", "int4:128:signed:fp16", "bf16",
/// "fp8_e4m3:128", "mxfp4", "int4:128:signed:fp16:h128". Defaults ("symmetric" for integers, scale "fp32")
/// may be spelt out: "int8:256:symmetric:fp32" is "int8:256".
template <detail::named... Quantizers>
struct named_quantizers {
    using variant = std::variant<Quantizers...>;

    /// The set of these quantizers and of `More`.
    template <detail::named... More>
    using with = named_quantizers<Quantizers..., More...>;

    /// The quantizer with this name. Throws precondition_error that lists the right names.
    static variant parse(std::string_view name) {
        variant result;
        const std::string wanted = detail::with_defaults(name);
        const auto named = [&](const short_text& canonical) { return wanted == detail::with_defaults(canonical); };
        if (!((named(Quantizers{}.name()) && (result = Quantizers{}, true)) || ...)) {
            throw precondition_error("quantizer", "one of " + list(), "\"" + std::string(name) + "\"");
        }
        return result;
    }

    /// The canonical name of a quantizer: parse(name(q)) has the type of q.
    static std::string name(const variant& q) {
        return std::visit([](const auto& held) { return short_text(held.name()).str(); }, q);
    }

    /// The names of all quantizers of the set, separated by ", ".
    static std::string list() {
        std::string names;
        ((names += (names.empty() ? "" : ", ") + short_text(Quantizers{}.name()).str()), ...);
        return names;
    }

    /// Index of the quantizer with this canonical name; the number of quantizers if none has this name.
    static consteval std::size_t index_of(std::string_view name) {
        constexpr short_text names[] = {short_text(Quantizers{}.name())...};
        std::size_t i = 0;
        while (i != sizeof...(Quantizers) && std::string_view(names[i]) != name) ++i;
        return i;
    }
    /// `type` is the quantizer at position `Index` of the set.
    template <std::size_t Index>
    struct at {
        static_assert(Index < sizeof...(Quantizers), "quantizer_named: no quantizer of known_quantizers has this name");
        using type = std::variant_alternative_t<Index, variant>;
    };
};

/// The types of `hops` that a program compiles reductions for, found by the names of their quantizers.
template <class... Hops>
struct named_hops {
    using variant = std::variant<Hops...>;

    /// The hops with quantizers of these names, by level. Throws precondition_error that lists the right names.
    template <std::convertible_to<std::string_view>... Names>
    static variant parse(const Names&... by_level) {
        variant result;
        std::string wanted, given;
        const auto append = [](std::string& to, std::string_view name) {
            to.append(to.empty() ? "" : " + ").append(name);
        };
        ((append(wanted, detail::with_defaults(by_level)), append(given, by_level)), ...);
        const auto named = [&](const auto& by_hop) {
            std::string spelt;
            by_hop.for_each([&](const auto& q) { append(spelt, detail::with_defaults(short_text(q.name()))); });
            return wanted == spelt;
        };
        if (!((named(Hops{}) && (result = Hops{}, true)) || ...)) {
            throw precondition_error("gradient quantizers", "one of " + list(), "\"" + given + "\"");
        }
        return result;
    }

    /// The names of all types of `hops`, separated by ", ".
    static std::string list() {
        std::string names;
        ((names += (names.empty() ? "" : ", ") + Hops{}.name()), ...);
        return names;
    }
};

/// Quantizers for programs that compare formats, such as bench/accuracy. Other programs name other sets.
using standard_quantizers = named_quantizers<
    cast_to<float>, cast_to<half>, cast_to<bfloat16>, block_integer<8, 256>, block_integer<8, 256, symmetric, half>,
    block_integer<8, 256, symmetric, bfloat16>, block_integer<8, 2048>, block_integer<6, 128>,
    block_integer<6, 128, symmetric, half>, block_integer<4, 128>, block_integer<4, 128, symmetric, half>,
    block_integer<4, 128, signed_absmax, half>, block_integer<4, 128, signed_absmax, bfloat16>,
    block_integer<4, 128, asymmetric, half>, block_integer<4, 2048>, hadamard<block_integer<8, 256, symmetric, half>>,
    hadamard<block_integer<4, 128, symmetric, half>>, hadamard<block_integer<4, 128, signed_absmax, half>, 128>,
    stochastic<block_integer<4, 128, symmetric, half>>, block_float<e4m3, 128>, block_float<e5m2, 128>, mxfp8<e4m3>,
    mxfp8<e5m2>, mxfp6<e2m3>, mxfp6<e3m2>, mxfp4>;

namespace detail {
template <int Bits, int Block, int Window>
using rotated = hadamard<block_integer<Bits, Block, signed_absmax, bfloat16>, Window>;
template <int Levels, class Bias = least_error>
using rotated_levels = hadamard<lloyd_max<Levels, 128, Bias>, 128>;
}  // namespace detail

/// All quantizers that have a name in this library: `standard_quantizers`, and formats with few bits. The list compiles
/// no codec. A new quantizer gets its name here; programs choose it by `quantizer_named`.
using known_quantizers =
    standard_quantizers::with<block_integer<8, 64, symmetric, half>, block_integer<6, 64, symmetric, half>,
                              block_integer<4, 64, symmetric, half>, block_integer<6, 128, symmetric, bfloat16>,
                              hadamard<block_integer<8, 256, symmetric, bfloat16>>, detail::rotated<4, 128, 32>,
                              detail::rotated<3, 128, 32>, detail::rotated<2, 64, 32>, detail::rotated<2, 128, 128>,
                              block_float<e4m3, 128, bfloat16>, lloyd_max<2, 128>, detail::rotated_levels<4>,
                              detail::rotated_levels<3>, detail::rotated_levels<2>, detail::rotated_levels<4, unbiased>,
                              detail::rotated_levels<3, unbiased>, detail::rotated_levels<2, unbiased>>;

namespace detail {
template <std::size_t Size>
struct name_literal {
    char text[Size] = {};
    consteval name_literal(const char (&literal)[Size]) { std::copy_n(literal, Size, text); }
    constexpr std::string_view view() const { return {text, Size - 1}; }
};
}  // namespace detail

/// The type of a quantizer of known_quantizers, by its canonical name: quantizer_named<"int4:128:signed:bf16">.
template <detail::name_literal Name>
using quantizer_named = typename known_quantizers::at<known_quantizers::index_of(Name.view())>::type;

}  // namespace zeropp
