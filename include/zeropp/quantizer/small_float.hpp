#pragma once
/// \file
/// Floats of 4, 6 and 8 bits, as the OCP's 8-bit and microscaling specifications define them.

#include <zeropp/core/math.hpp>
#include <zeropp/core/text.hpp>

#include <cstdint>

namespace zeropp {

/// A float format of up to 8 bits: a sign, `ExponentBits` of exponent and `MantissaBits` of mantissa, in the low bits
/// of a code, with subnormals and both zeros. `LargestCode` is the code of the largest finite value. Codes above
/// `LargestCode` are NaN; in IEEE formats, the first of these is infinity.
///
/// Source     OCP 8-bit Floating Point Specification (OFP8) 1.0; OCP Microscaling Formats (MX) 1.0
template <int ExponentBits, int MantissaBits, std::uint32_t LargestCode>
struct small_float {
    static_assert(ExponentBits >= 2 && MantissaBits >= 1 && ExponentBits + MantissaBits <= 7,
                  "small_float: from 4 to 8 bits, 2 of them or more for the exponent");
    static_assert(LargestCode >> MantissaBits != 0 && LargestCode >> (ExponentBits + MantissaBits) == 0,
                  "small_float: LargestCode must be a normal number's, without the sign");

private:
    static constexpr std::uint32_t shift = 23 - MantissaBits;
    /// Difference between the exponent biases of a float, 127, and of this format, 2^(ExponentBits - 1) - 1.
    static constexpr std::uint32_t rebias = (128u - (1u << (ExponentBits - 1))) << 23;
    static constexpr std::uint32_t smallest_normal_bits = rebias + (1u << 23);

    /// Bits of the largest power of two not above a float. `magnitude` has the float's bits without the sign. The
    /// power is at least this format's smallest normal value, because subnormals are as far apart as the smallest
    /// normal values.
    static constexpr ZEROPP_HOST_DEVICE std::uint32_t binade_of(std::uint32_t magnitude) noexcept {
        const std::uint32_t power = magnitude & infinity_bits;
        return power < smallest_normal_bits ? smallest_normal_bits : power;
    }

    /// The power of two that, as a float, has the unit in the last place that this format has in `binade`. Added to x,
    /// it rounds x to the format; the sum's low bits are a number of units. Nothing is selected by float arithmetic:
    /// compilers would make a branch of that, and leave loops scalar.
    static constexpr ZEROPP_HOST_DEVICE float aligned_to(std::uint32_t binade) noexcept {
        return bits_float(binade + (shift << 23));
    }

    /// Bits that turn the decoded value of the code `magnitude` into Inf or NaN; 0 if that value is finite.
    static constexpr ZEROPP_HOST_DEVICE std::uint32_t special_bits(std::uint32_t magnitude) noexcept {
        constexpr std::uint32_t infinity_code = ((1u << ExponentBits) - 1u) << MantissaBits;
        if constexpr (LargestCode + 1u == infinity_code) {
            const std::uint32_t nan = magnitude > infinity_code ? float_bits(quiet_nan) : 0u;
            return nan | (magnitude == infinity_code ? infinity_bits : 0u);
        } else {
            return magnitude > LargestCode ? float_bits(quiet_nan) : 0u;
        }
    }

public:
    /// Number of bits of a code, the sign included.
    static constexpr int bits = 1 + ExponentBits + MantissaBits;
    static constexpr int mantissa_bits = MantissaBits;
    static constexpr std::uint32_t sign_bit = 1u << (bits - 1);
    /// The largest finite value.
    static constexpr float largest = bits_float((LargestCode << shift) + rebias);
    /// Exponent of the largest power of two not above `largest`.
    static constexpr int largest_exponent = static_cast<int>(float_bits(largest) >> 23) - 127;

    /// The code nearest to x, ties to the even code. For larger |x|, Inf and NaN: `LargestCode`, with the sign of x.
    static constexpr ZEROPP_HOST_DEVICE std::uint32_t encode(float x) noexcept {
        const std::uint32_t sign = (float_bits(x) >> (32 - bits)) & sign_bit;
        // Clamped as an integer, so that no compiler fuses the addition below with a product that has given x.
        const std::uint32_t magnitude = float_bits(x) & 0x7fffffffu;
        const std::uint32_t bounded = magnitude < float_bits(largest) ? magnitude : float_bits(largest);
        const std::uint32_t binade = binade_of(bounded);
        const float aligning = aligned_to(binade);
        const std::uint32_t units = float_bits(bits_float(bounded) + aligning) - float_bits(aligning);
        return sign | (((binade - smallest_normal_bits) >> shift) + units);
    }

    /// The value of a code; exact. Bits above the code's own must be zero.
    static constexpr ZEROPP_HOST_DEVICE float decode(std::uint32_t code) noexcept {
        const std::uint32_t sign = (code & sign_bit) << (32 - bits);
        const std::uint32_t magnitude = code & (sign_bit - 1u);
        const std::uint32_t binade = binade_of((magnitude << shift) + rebias);
        const std::uint32_t units = magnitude - ((binade - smallest_normal_bits) >> shift);
        const float aligning = aligned_to(binade);
        const float finite = bits_float(float_bits(aligning) + units) - aligning;
        return bits_float(sign | float_bits(finite) | special_bits(magnitude));
    }

    /// Bound of |decode(encode(x)) - x| for finite x: half a unit in the last place of x in this format. For |x| above
    /// the largest value, |x| minus the largest value, rounded to float.
    static constexpr ZEROPP_HOST_DEVICE float error_bound(float x) noexcept {
        const std::uint32_t magnitude = float_bits(x) & 0x7fffffffu;
        const float half_unit = bits_float(binade_of(magnitude) - ((MantissaBits + 1u) << 23));
        return magnitude > float_bits(largest) ? bits_float(magnitude) - largest : half_unit;
    }

    /// The format's name, as "e4m3".
    static constexpr short_text name() { return short_text("e").append(ExponentBits).append("m").append(MantissaBits); }
};

/// Format of 8 bits: 4 of exponent, 3 of mantissa; values up to 448, without infinity.
using e4m3 = small_float<4, 3, 0x7e>;
/// Format of 8 bits: 5 of exponent, 2 of mantissa; values up to 57344, with infinity.
using e5m2 = small_float<5, 2, 0x7b>;
/// Format of 6 bits: 2 of exponent, 3 of mantissa; values up to 7.5, without infinity and NaN.
using e2m3 = small_float<2, 3, 0x1f>;
/// Format of 6 bits: 3 of exponent, 2 of mantissa; values up to 28, without infinity and NaN.
using e3m2 = small_float<3, 2, 0x1f>;
/// Format of 4 bits: values 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
using e2m1 = small_float<2, 1, 0x7>;

/// A power of two from 2^-127 to 2^127 in 8 bits, the scale of the microscaling formats; 0xff is NaN.
struct e8m0 {
    std::uint8_t bits;

    constexpr ZEROPP_HOST_DEVICE explicit operator float() const {
        // 0 is 2^-127, a denormal float, and 0xff is NaN. These two need the highest bit of the mantissa.
        const bool end = bits == 0 || bits == 0xff;
        return bits_float(std::uint32_t{bits} << 23 | std::uint32_t{end} << 22);
    }
};

}  // namespace zeropp
