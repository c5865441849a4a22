#pragma once

#include <zeropp/zeropp.hpp>

#include <string>
#include <string_view>
#include <variant>

namespace zero3_gpt {

/// The quantizers of a gradient's two hops.
template <zeropp::quantizer Inside, zeropp::quantizer Across>
struct hops {
    using inside_type = Inside;
    using across_type = Across;
    Inside inside;
    Across across;
};

/// The pairs of quantizers that a program was compiled with: each is an instance of the reduce-scatter.
template <class... Hops>
struct named_hops {
    using variant = std::variant<Hops...>;

    /// Throws precondition_error that lists the right pairs.
    static variant parse(std::string_view inside, std::string_view across) {
        variant result;
        if (!((name_of<Hops>() == both(inside, across) && (result = Hops{}, true)) || ...)) {
            std::string list;
            ((list += (list.empty() ? "" : ", ") + name_of<Hops>()), ...);
            throw zeropp::precondition_error("gradient quantizers", "one of " + list,
                                             "\"" + both(inside, across) + "\"");
        }
        return result;
    }

private:
    static std::string both(std::string_view inside, std::string_view across) {
        return std::string(inside) + " + " + std::string(across);
    }
    template <class H>
    static std::string name_of() {
        return both(zeropp::short_text(typename H::inside_type{}.name()),
                    zeropp::short_text(typename H::across_type{}.name()));
    }
};

/// What this example can put on the wire. A framework would name its own.
struct wire_formats {
    using bf16 = zeropp::lossless<zeropp::bfloat16>;
    using fp32 = zeropp::lossless<float>;
    using int8 = zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::bfloat16>;
    using int8_rotated = zeropp::hadamard<int8>;
    using int6 = zeropp::block_integer<6, 128, zeropp::symmetric, zeropp::bfloat16>;
    using int4 = zeropp::block_integer<4, 128, zeropp::signed_extreme, zeropp::bfloat16>;
    using int4_rotated = zeropp::hadamard<int4>;
    using fp8 = zeropp::block_float<zeropp::e4m3, 128, zeropp::bfloat16>;

    using weights = zeropp::named_quantizers<bf16, fp32, zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::half>,
                                             int8, int6, int4, int4_rotated, fp8>;
    using gradients = named_hops<hops<bf16, bf16>, hops<fp32, fp32>, hops<int8, int8>, hops<int8, int4>,
                                 hops<int6, int6>, hops<int4, int4>, hops<int8_rotated, int4_rotated>, hops<fp8, fp8>>;
    /// How residuals of error feedback are stored.
    using residuals = zeropp::residuals_in_int8;
};

}  // namespace zero3_gpt
