#pragma once
/// \file
/// Codes of granules: dense bits, first code lowest.

#include <zeropp/codec/cuda/granule.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

/// Eight codes of `Bits` bits, in 32-bit words. Unused bits of the last word are zero.
template <int Bits>
struct packed_codes {
    static constexpr int words = (Bits + 3) / 4;
    /// True if some codes lie in two words.
    static constexpr bool straddles = 32 % Bits != 0;
    std::uint32_t data[std::size_t{words}];

    /// Packs eight codes. Requires codes of no more than Bits bits.
    __device__ static packed_codes of(const std::uint32_t (&codes)[granule_size]) {
        packed_codes p{};
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            const int shift = i * Bits % 32;
            p.data[i * Bits / 32] |= codes[i] << shift;
            if constexpr (straddles) {
                if (shift + Bits > 32) p.data[i * Bits / 32 + 1] |= codes[i] >> (32 - shift);
            }
        }
        return p;
    }

    /// Clears all codes but the first `valid`.
    __device__ void keep(int valid) {
#pragma unroll
        for (int w = 0; w != words; ++w) {
            const int bits = valid * Bits - 32 * w;
            if (bits < 32) data[w] = bits > 0 ? data[w] & ((1u << bits) - 1u) : 0u;
        }
    }

    __device__ std::uint32_t at(int i) const {
        const int shift = i * Bits % 32;
        std::uint32_t code = data[i * Bits / 32] >> shift;
        if constexpr (straddles) {
            if (shift + Bits > 32) code |= data[i * Bits / 32 + 1] << (32 - shift);
        }
        if constexpr (Bits < 32) code &= (1u << Bits) - 1u;
        return code;
    }
};

/// Bytes of the widest access to eight codes that start at a multiple of `Bits` bytes from a 16-byte boundary.
template <int Bits>
inline constexpr int code_access = Bits % 16 == 0  ? 16
                                   : Bits % 8 == 0 ? 8
                                   : Bits % 4 == 0 ? 4
                                   : Bits % 2 == 0 ? 2
                                                   : 1;

/// Reads device memory; if `Constant`, memory that no kernel writes meanwhile.
template <bool Constant, class Word>
__device__ Word load_word(const Word* from) {
    if constexpr (Constant) {
        return __ldg(from);
    } else {
        return *from;
    }
}

/// Reads the codes of a granule. `elements` is 8, or fewer at the end of a message, which has no bytes beyond them.
template <int Bits, bool Constant = true>
__device__ packed_codes<Bits> load_codes(const std::byte* from, int elements) {
    packed_codes<Bits> p{};
    constexpr int access = code_access<Bits>;
    if (elements != granule_size) {
        const int bytes = (elements * Bits + 7) / 8;
#pragma unroll
        for (int i = 0; i != Bits; ++i) {
            if (i < bytes) p.data[i / 4] |= static_cast<std::uint32_t>(from[i]) << (i % 4 * 8);
        }
    } else if constexpr (access == 16) {
#pragma unroll
        for (int i = 0; i != Bits / 16; ++i) {
            const uint4 words = load_word<Constant>(reinterpret_cast<const uint4*>(from) + i);
            p.data[4 * i] = words.x;
            p.data[4 * i + 1] = words.y;
            p.data[4 * i + 2] = words.z;
            p.data[4 * i + 3] = words.w;
        }
    } else if constexpr (access == 8) {
        const uint2 words = load_word<Constant>(reinterpret_cast<const uint2*>(from));
        p.data[0] = words.x;
        p.data[1] = words.y;
    } else if constexpr (access == 4) {
        p.data[0] = load_word<Constant>(reinterpret_cast<const std::uint32_t*>(from));
    } else {
        using part = std::conditional_t<access == 2, std::uint16_t, std::uint8_t>;
#pragma unroll
        for (int i = 0; i != Bits / access; ++i) {
            const std::uint32_t bits = load_word<Constant>(reinterpret_cast<const part*>(from) + i);
            p.data[i * access / 4] |= bits << (i * access % 4 * 8);
        }
    }
    return p;
}

template <int Bits>
__device__ void store_codes(std::byte* to, const packed_codes<Bits>& p, int elements) {
    constexpr int access = code_access<Bits>;
    if (elements != granule_size) {
        const int bytes = (elements * Bits + 7) / 8;
#pragma unroll
        for (int i = 0; i != Bits; ++i) {
            if (i < bytes) to[i] = static_cast<std::byte>(p.data[i / 4] >> (i % 4 * 8));
        }
    } else if constexpr (access == 16) {
#pragma unroll
        for (int i = 0; i != Bits / 16; ++i) {
            reinterpret_cast<uint4*>(to)[i] =
                uint4{p.data[4 * i], p.data[4 * i + 1], p.data[4 * i + 2], p.data[4 * i + 3]};
        }
    } else if constexpr (access == 8) {
        *reinterpret_cast<uint2*>(to) = uint2{p.data[0], p.data[1]};
    } else if constexpr (access == 4) {
        *reinterpret_cast<std::uint32_t*>(to) = p.data[0];
    } else {
        using part = std::conditional_t<access == 2, std::uint16_t, std::uint8_t>;
#pragma unroll
        for (int i = 0; i != Bits / access; ++i) {
            reinterpret_cast<part*>(to)[i] = static_cast<part>(p.data[i * access / 4] >> (i * access % 4 * 8));
        }
    }
}

/// Granules, up to four, in one access to codes; 1 if their codes cannot be split by words or parts of one.
template <int Bits>
inline constexpr int granules_together = Bits == 1 || Bits == 2 || Bits == 4 ? 4
                                         : Bits == 8                         ? 2
                                                                             : 1;

/// Codes of `Run` whole granules in a row, the first at a multiple of `Run` in a tensor's codes.
template <int Bits, int Run>
struct code_run {
    static constexpr int bytes = Run * Bits;
    static constexpr int words = (bytes + 3) / 4;
    using access = std::conditional_t<
        bytes % 16 == 0, uint4,
        std::conditional_t<bytes % 8 == 0, uint2, std::conditional_t<bytes % 4 == 0, std::uint32_t, std::uint16_t>>>;

    std::uint32_t data[std::size_t{words}];

    __device__ static code_run load(const std::byte* from) {
        code_run r;
#pragma unroll
        for (std::size_t i = 0; i != bytes / sizeof(access); ++i) {
            const access part = __ldg(reinterpret_cast<const access*>(from) + i);
            if constexpr (sizeof(access) == 16) {
                r.data[4 * i] = part.x;
                r.data[4 * i + 1] = part.y;
                r.data[4 * i + 2] = part.z;
                r.data[4 * i + 3] = part.w;
            } else if constexpr (sizeof(access) == 8) {
                r.data[2 * i] = part.x;
                r.data[2 * i + 1] = part.y;
            } else {
                r.data[i] = part;
            }
        }
        return r;
    }

    __device__ void store(std::byte* to) const {
#pragma unroll
        for (std::size_t i = 0; i != bytes / sizeof(access); ++i) {
            access* const part = reinterpret_cast<access*>(to) + i;
            if constexpr (sizeof(access) == 16) {
                *part = uint4{data[4 * i], data[4 * i + 1], data[4 * i + 2], data[4 * i + 3]};
            } else if constexpr (sizeof(access) == 8) {
                *part = uint2{data[2 * i], data[2 * i + 1]};
            } else {
                *part = static_cast<access>(data[i]);
            }
        }
    }

    /// Codes of granule k.
    __device__ packed_codes<Bits> at(int k) const {
        packed_codes<Bits> p;
        if constexpr (Bits % 4 == 0) {
#pragma unroll
            for (int w = 0; w != p.words; ++w) p.data[w] = data[k * p.words + w];
        } else {
            p.data[0] = data[k * Bits / 4] >> (k * Bits % 4 * 8) & ((1u << (8 * Bits)) - 1u);
        }
        return p;
    }
    __device__ void set(int k, const packed_codes<Bits>& p) {
        if constexpr (Bits % 4 == 0) {
#pragma unroll
            for (int w = 0; w != p.words; ++w) data[k * p.words + w] = p.data[w];
        } else {
            std::uint32_t& word = data[k * Bits / 4];
            word = (k * Bits % 4 == 0 ? 0u : word) | p.data[0] << (k * Bits % 4 * 8);
        }
    }
};

}  // namespace zeropp::detail
