#pragma once
/// \file
/// Quantizers of rotated elements.

#include <zeropp/quantizer/abilities.hpp>

namespace zeropp {

/// `Base` on elements that went through a Walsh-Hadamard transform in windows of `Size`, and come back through its
/// inverse. Each coefficient is a mean of its window, so that outliers no longer decide the block's scale: at 4 bits in
/// blocks of 128, data of Student's t(3) gain 6 dB; normal data neither gain nor lose.
///
/// Size       a power of two from 8 to 256, not above the block's
/// Bounds are stated if Base has `extent(params)`, as `block_integer` does.
/// Elements whose sums over a window exceed the largest float decode to NaN, all of their block.
/// Source     SDP4Bit (arXiv 2410.15526); QuaRot (arXiv 2404.00456)
template <quantizer Base, int Size = 32>
struct hadamard : Base {
    static_assert(!rotating_quantizer<Base> && !message_scaled_quantizer<Base> && !positional_quantizer<Base>,
                  "hadamard: the base quantizer must not be rotated already, know positions, or scale whole messages");
    static_assert(Size >= 8 && Size <= 256 && Size <= Base::block_size && (Size & (Size - 1)) == 0,
                  "hadamard: Size must be a power of two from 8 to 256, not above the block's size");

    static constexpr int hadamard_size = Size;

    using typename Base::params;

    /// Every coefficient of the window off by its bound, in the direction that hurts.
    constexpr ZEROPP_HOST_DEVICE float error_bound(float, const params& p) const noexcept
        requires(bounded_quantizer<Base>&& requires(const Base& base) { base.extent(p); }) {
        const float extent = Base::extent(p);
        return static_cast<float>(Size) * detail::rotation_scale<Size>(true) *
               (Base::error_bound(extent, p) + extent * 0x1p-20f);
    }

    /// "int4:128:h32"
    constexpr short_text name() const { return short_text(Base::name()).append(":h").append(Size); }
};

template <quantizer Base, int Size>
inline constexpr bool has_integer_arithmetic<hadamard<Base, Size>> = has_integer_arithmetic<Base>;

}  // namespace zeropp
