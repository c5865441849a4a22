#pragma once

#include <zeropp/zeropp.hpp>

#include <variant>

namespace zero3_gpt {

/// std::variant of `Of<T>` for every alternative T of `Variant`.
template <class Variant, template <class> class Of>
struct variant_over;
template <class... T, template <class> class Of>
struct variant_over<std::variant<T...>, Of> {
    using type = std::variant<Of<T>...>;
};

/// Formats that this example can send. A framework would choose its own.
struct wire_formats {
    using bf16 = zeropp::quantizer_named<"bf16">;
    using fp32 = zeropp::quantizer_named<"fp32">;
    using int8 = zeropp::quantizer_named<"int8:256:bf16">;
    using int8_rotated = zeropp::quantizer_named<"int8:256:bf16:h32">;
    using int6 = zeropp::quantizer_named<"int6:128:bf16">;
    using int4 = zeropp::quantizer_named<"int4:128:signed:bf16">;
    using int4_rotated = zeropp::quantizer_named<"int4:128:signed:bf16:h32">;
    using int2_rotated = zeropp::quantizer_named<"int2:64:signed:bf16:h32">;
    using signs = zeropp::quantizer_named<"lloyd2:128:unbiased:h128">;
    using three_levels = zeropp::quantizer_named<"lloyd3:128:h128">;
    using fp8 = zeropp::quantizer_named<"fp8_e4m3:128:bf16">;

    using weights = zeropp::named_quantizers<bf16, fp32, zeropp::quantizer_named<"int8:256:fp16">, int8, int6, int4,
                                             int4_rotated, int2_rotated, signs, fp8>;
    /// Formats of the weights that nodes keep and differences update.
    using replicas = zeropp::named_quantizers<bf16, fp32>;
    /// Within a node, between nodes, and between sites.
    template <class IntraNode, class InterNode, class InterSite = InterNode>
    using hops = zeropp::hops<IntraNode, InterNode, InterSite>;
    using gradients =
        zeropp::named_hops<hops<bf16, bf16>, hops<fp32, fp32>, hops<int8, int8>, hops<int8, int4>, hops<int6, int6>,
                           hops<int4, int4>, hops<int8_rotated, int4_rotated>, hops<int8_rotated, int2_rotated>,
                           hops<int8_rotated, int4_rotated, int2_rotated>, hops<int8_rotated, three_levels>,
                           hops<fp8, fp8>>;
    /// Formats of exchanges between islands: 16, 4 and 2 bits with the least error.
    using exchanges = zeropp::named_quantizers<bf16, int4_rotated, zeropp::quantizer_named<"lloyd4:128:h128">>;
    /// Storage of error feedback's residuals.
    using residuals = zeropp::residuals_in_int8;
};

/// Formats of weight differences: the formats of weights, and exact differences.
template <class Formats>
using differences_of = typename Formats::weights::template with<zeropp::exact_differences>;

}  // namespace zero3_gpt
