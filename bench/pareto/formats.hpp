#pragma once
/// \file
/// Formats of the trainings in bench/pareto: few bits, and controls that save no bytes.

#include "pareto/prediction.hpp"

#include <formats.hpp>
#include <zeropp/zeropp.hpp>

#include <cstdint>

namespace pareto {

/// A control: decodes `Percent` percent of every element, without rounding. Replicas that follow such differences lag
/// behind the weights, as with few bits.
template <int Percent>
struct lagging : zeropp::cast_to<float> {
    constexpr float decode(std::uint32_t code, const params& p) const noexcept {
        return zeropp::cast_to<float>::decode(code, p) * (Percent / 100.0f);
    }
    static constexpr zeropp::short_text name() { return zeropp::short_text("lagging").append(Percent); }
};

/// A control: decodes every element with a relative error of up to `Percent` percent, uniform and of either sign: noise
/// of a quantizer's size.
template <int Percent>
struct noisy : zeropp::cast_to<float> {
    constexpr float decode(std::uint32_t code, const params& p) const noexcept {
        // Upper bits of a product with an odd number look random.
        const std::uint32_t mixed = (code ^ (code >> 15)) * 0x9e3779b1u;
        const float drawn = static_cast<float>(static_cast<std::int32_t>(mixed)) * 0x1p-31f;
        return zeropp::cast_to<float>::decode(code, p) * (1.0f + drawn * (Percent / 100.0f));
    }
    static constexpr zeropp::short_text name() { return zeropp::short_text("noisy").append(Percent); }
};

struct formats : zero3_gpt::wire_formats {
    template <int Bits, int Block, int Window>
    using rotated =
        zeropp::hadamard<zeropp::block_integer<Bits, Block, zeropp::signed_absmax, zeropp::bfloat16>, Window>;

    template <int Levels, class Bias = zeropp::least_error>
    using lloyd = zeropp::hadamard<zeropp::lloyd_max<Levels, 128, Bias>, 128>;

    using weights =
        zeropp::named_quantizers<bf16, fp32, zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::half>,
                                 rotated<4, 128, 32>, rotated<3, 128, 32>, rotated<2, 64, 32>, rotated<2, 128, 128>,
                                 lloyd<4>, lloyd<3>, lloyd<2>, lloyd<4, zeropp::unbiased>, lloyd<3, zeropp::unbiased>,
                                 lloyd<2, zeropp::unbiased>, zeropp::spike_reserving<2, 256>, lagging<70>, noisy<70>,
                                 predicted<lloyd<2, zeropp::unbiased>, 90, 80>,
                                 predicted<lloyd<3, zeropp::unbiased>, 90, 50>>;
    using replicas = zeropp::named_quantizers<bf16>;
    template <class Exact, class Space>
    using replica = moving_replica<Exact, Space>;
    template <class Exec, class Communicator, class Q, class Shard, class Replica, class Full, class Scratch>
    static void update(const Exec& exec, Communicator& comm, const Q& q, Shard&& shard, Replica& replica,
                       std::uint64_t version, Full&& full, Scratch&& scratch) {
        if constexpr (predicts<Q>) {
            update_predicted(exec, comm, q, shard, replica, version, full, scratch);
        } else {
            zeropp::quantized_update(exec, comm, q, shard, replica.to(version, full), {}, scratch);
        }
    }
    using gradients = zeropp::named_hops<
        hops<bf16, bf16>, hops<fp32, fp32>, hops<int8_rotated, rotated<4, 128, 32>>,
        hops<int8_rotated, rotated<3, 128, 32>>, hops<int8_rotated, rotated<2, 64, 32>>,
        hops<int8_rotated, rotated<2, 128, 128>>, hops<int8_rotated, lloyd<4>>, hops<int8_rotated, lloyd<3>>,
        hops<int8_rotated, lloyd<2>>, hops<int8_rotated, zeropp::lloyd_max<2, 128>>,
        hops<int8_rotated, lloyd<4, zeropp::unbiased>>, hops<int8_rotated, lloyd<2, zeropp::unbiased>>,
        hops<int8_rotated, zeropp::spike_reserving<2, 256>>, hops<int8_rotated, zeropp::spike_reserving<3, 256>>,
        hops<int8_rotated, lagging<70>>>;
};

}  // namespace pareto
