#pragma once
/// \file
/// Quantizers by name, so that programs can choose at run time among the instances they were compiled with.

#include <zeropp/core/error.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/lossless.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

namespace zeropp {

/// The names of a set of compiled quantizers.
///
/// A name is FORMAT[:BLOCK][:SCHEME][:SCALE], for instance "int8:256", "int4:128:signed:fp16", "bf16". The defaults
/// ("symmetric", "fp32") may be spelt out: "int8:256:symmetric:fp32" is "int8:256".
template <quantizer... Quantizers>
struct named_quantizers {
    using variant = std::variant<Quantizers...>;

    /// The quantizer of that name. Throws precondition_error that lists the right names.
    static variant parse(std::string_view name) {
        variant result;
        const std::string wanted = without_defaults(name);
        if (!((wanted == short_text(Quantizers{}.name()).str() && (result = Quantizers{}, true)) || ...)) {
            throw precondition_error("quantizer", "one of " + list(), "\"" + std::string(name) + "\"");
        }
        return result;
    }

    /// The name of a quantizer, canonical: parse(name(q)) is q.
    static std::string name(const variant& q) {
        return std::visit([](const auto& held) { return short_text(held.name()).str(); }, q);
    }

    /// All names, separated by ", ".
    static std::string list() {
        std::string names;
        ((names += (names.empty() ? "" : ", ") + short_text(Quantizers{}.name()).str()), ...);
        return names;
    }

private:
    /// The name without the defaults, where they stand in their places.
    static std::string without_defaults(std::string_view name) {
        std::string kept;
        for (std::size_t field = 0, begin = 0; begin <= name.size(); ++field) {
            const std::size_t end = std::min(name.find(':', begin), name.size());
            const std::string_view word = name.substr(begin, end - begin);
            const bool default_scheme = field == 2 && word == "symmetric";
            const bool default_scale = field >= 2 && end == name.size() && word == "fp32";
            if (!default_scheme && !default_scale) kept.append(field == 0 ? "" : ":").append(word);
            begin = end + 1;
        }
        return kept;
    }
};

/// The set that the library's own programs are compiled with.
using standard_quantizers =
    named_quantizers<lossless<float>, lossless<half>, lossless<bfloat16>, block_integer<8, 256>,
                     block_integer<8, 256, symmetric, half>, block_integer<8, 256, symmetric, bfloat16>,
                     block_integer<8, 2048>, block_integer<6, 128>, block_integer<6, 128, symmetric, half>,
                     block_integer<4, 128>, block_integer<4, 128, symmetric, half>,
                     block_integer<4, 128, signed_extreme, half>, block_integer<4, 128, signed_extreme, bfloat16>,
                     block_integer<4, 128, asymmetric, half>, block_integer<4, 2048>>;

}  // namespace zeropp
