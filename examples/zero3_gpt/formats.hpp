#pragma once

#include <zeropp/zeropp.hpp>

#include <utility>

namespace zero3_gpt {

/// Formats that this example can send. A framework would choose its own.
struct wire_formats {
    using bf16 = zeropp::lossless<zeropp::bfloat16>;
    using fp32 = zeropp::lossless<float>;
    using int8 = zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::bfloat16>;
    using int8_rotated = zeropp::hadamard<int8>;
    using int6 = zeropp::block_integer<6, 128, zeropp::symmetric, zeropp::bfloat16>;
    using int4 = zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>;
    using int4_rotated = zeropp::hadamard<int4>;
    using int2_rotated = zeropp::hadamard<zeropp::block_integer<2, 64, zeropp::signed_absmax, zeropp::bfloat16>>;
    using signs = zeropp::hadamard<zeropp::lloyd_max<2, 128, zeropp::unbiased>, 128>;
    using three_levels = zeropp::hadamard<zeropp::lloyd_max<3, 128>, 128>;
    using fp8 = zeropp::block_float<zeropp::e4m3, 128, zeropp::bfloat16>;

    using weights = zeropp::named_quantizers<bf16, fp32, zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::half>,
                                             int8, int6, int4, int4_rotated, int2_rotated, signs, fp8>;
    /// Formats of the weights that nodes keep and differences update.
    using replicas = zeropp::named_quantizers<bf16, fp32>;
    template <class Exact, class Space>
    using replica = zeropp::secondary_replica<Exact, Space>;
    /// Collective that updates them.
    template <class... Arguments>
    static void update(Arguments&&... arguments) {
        zeropp::quantized_update_gather(std::forward<Arguments>(arguments)...);
    }
    template <class Inside, class Across>
    using hops = zeropp::hops<Inside, Across>;
    using gradients =
        zeropp::named_hops<hops<bf16, bf16>, hops<fp32, fp32>, hops<int8, int8>, hops<int8, int4>, hops<int6, int6>,
                           hops<int4, int4>, hops<int8_rotated, int4_rotated>, hops<int8_rotated, int2_rotated>,
                           hops<int8_rotated, three_levels>, hops<fp8, fp8>>;
    /// Storage of error feedback's residuals.
    using residuals = zeropp::residuals_in_int8;
};

}  // namespace zero3_gpt
