#pragma once
/// \file
/// Quantizers of rotated elements.

#include <zeropp/quantizer/quantizer.hpp>

#include <type_traits>

namespace zeropp {

/// The quantizer `Base` on elements after a Walsh-Hadamard transform of each `Size` successive elements, a window;
/// decoding applies the inverse. Each coefficient mixes its whole window, so that outliers no longer decide the block's
/// scale. At 4 bits in blocks of 128, data of Student's t(3) gain 6 dB of signal-to-noise ratio; normal data neither
/// gain nor lose.
///
/// Size       a power of two from 8 to 256, not above the block's
/// There is an `error_bound` if Base has `error_bound` and `extent(params)`, as `block_integer` does. If a sum over a
/// window exceeds the largest float, the window's block decodes to NaN in every element.
/// Source     SDP4Bit (arXiv 2410.15526); QuaRot (arXiv 2404.00456)
template <quantizer Base, int Size = 32>
struct hadamard : Base {
    static_assert(!rotating_quantizer<Base>, "hadamard: the base quantizer must not be rotated already");
    static_assert(Size >= 8 && Size <= 256 && Size <= Base::block_size && (Size & (Size - 1)) == 0,
                  "hadamard: Size must be a power of two from 8 to 256, not above the block's size");

    static constexpr int hadamard_size = Size;

    using typename Base::params;

    /// Bound of |decode(encode(x)) - x|: the sum of the error bounds of all coefficients of the window of x, times the
    /// factor of the inverse transform.
    constexpr ZEROPP_HOST_DEVICE float error_bound(float, const params& p) const noexcept
        requires(bounded_quantizer<Base> && requires(const Base& base) { base.extent(p); })
    {
        const float extent = Base::extent(p);
        return static_cast<float>(Size) * detail::rotation_scale<Size>(true) *
               (Base::error_bound(extent, p) + extent * 0x1p-20f);
    }

    /// The quantizer's name: of `Base`, then ":h" and the window's size, as "int4:128:h32".
    constexpr short_text name() const { return short_text(Base::name()).append(":h").append(Size); }
};

template <quantizer Base, int Size>
inline constexpr bool has_integer_arithmetic<hadamard<Base, Size>> = has_integer_arithmetic<Base>;

/// `Base` encodes values that are rotated already. So hadamard<Base, Size> and `Base` share compiled code.
template <quantizer Base, int Size>
struct detail::unrotated<hadamard<Base, Size>> : std::type_identity<Base> {};

}  // namespace zeropp
