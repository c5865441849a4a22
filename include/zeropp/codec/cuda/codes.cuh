#pragma once
/// \file
/// Codes of granules (eight successive elements): dense bits, the first code in the lowest.

#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/instructions.cuh>
#include <zeropp/layout/ternary.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// Eight codes of `Bits` bits, in 32-bit words. Unused bits of the last word are zero.
template <int Bits>
struct packed_codes {
    static constexpr int words = (Bits + 3) / 4;
    /// True if a code may begin in one word and end in the next.
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
        if (valid == granule_size) return;  // otherwise nvcc keeps masks where `valid` is always 8
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

/// Loads the codes of a granule's first `elements` elements (0 to 8), and no byte beyond them. `from` must be a
/// multiple of `Bits` bytes from a 16-byte boundary. `Constant`: in global memory, not written meanwhile.
template <int Bits, bool Constant = true>
__device__ packed_codes<Bits> load_codes(const std::byte* from, int elements) {
    packed_codes<Bits> p{};
    if (elements == granule_size) {
        load_words<Bits, Constant>(from, p.data);
        return p;
    }
    const int bytes = (elements * Bits + 7) / 8;
#pragma unroll
    for (int i = 0; i != Bits; ++i) {
        if (i < bytes) p.data[i / 4] |= static_cast<std::uint32_t>(from[i]) << (i % 4 * 8);
    }
    return p;
}

template <int Bits>
__device__ void store_codes(std::byte* to, const packed_codes<Bits>& p, int elements) {
    if (elements == granule_size) return store_words<Bits>(to, p.data);
    const int bytes = (elements * Bits + 7) / 8;
#pragma unroll
    for (int i = 0; i != Bits; ++i) {
        if (i < bytes) to[i] = static_cast<std::byte>(p.data[i / 4] >> (i % 4 * 8));
    }
}

/// Number of granules of a group of ternary codes, which are packed together from a new byte on.
template <ternary_quantizer Q>
inline constexpr std::size_t group_granules = ternary_group<Q> / granule_size;
/// Number of bytes of a group of ternary codes.
template <ternary_quantizer Q>
inline constexpr std::size_t group_bytes = ternary_bytes(ternary_group<Q>, ternary_group<Q>);

/// Loads the codes of the first `elements` elements (0 to 8) of the granule with index `granule` in a section. `codes`
/// is the address of the section's first code. `Constant`: in global memory, not written meanwhile.
template <quantizer Q, bool Constant = true>
__device__ packed_codes<Q::code_bits> load_codes_of(const std::byte* codes, std::size_t granule, int elements) {
    if constexpr (ternary_quantizer<Q>) {
        constexpr auto in_byte = static_cast<unsigned>(codes_in_byte);
        const auto before = static_cast<unsigned>(granule % group_granules<Q>) * granule_size;
        const std::byte* const from = codes + granule / group_granules<Q> * group_bytes<Q> + before / in_byte;
        // Number of codes in the first byte that belong to the preceding granule.
        const unsigned ahead = before % in_byte;
        std::uint32_t all = 0;
#pragma unroll
        for (unsigned i = 0; i != 3; ++i) {
            if (i * in_byte < ahead + static_cast<unsigned>(elements)) {
                const auto byte = load_word<Constant>(reinterpret_cast<const std::uint8_t*>(from + i));
                all |= ternary_codes(byte) << (2 * in_byte * i);
            }
        }
        packed_codes<2> p{};
        p.data[0] = all >> 2 * ahead & 0xffffu;
        p.keep(elements);
        return p;
    } else {
        return load_codes<Q::code_bits, Constant>(codes + granule * Q::code_bits, elements);
    }
}

/// Stores the ternary codes `p` of the granule with index `granule` in a section. `codes` is the address of the
/// section's first code, with room for `elements` codes. Two granules may share a byte. So all threads of a warp must
/// call this together, consecutive threads with consecutive granules of a group of codes.
template <ternary_quantizer Q>
__device__ void store_ternary(std::byte* codes, std::size_t granule, const packed_codes<2>& p, std::size_t elements) {
    constexpr auto in_byte = static_cast<unsigned>(codes_in_byte);
    constexpr std::size_t group = group_granules<Q>;
    const std::uint32_t next = __shfl_down_sync(0xffffffffu, p.data[0], 1);
    const auto mine = static_cast<unsigned>(granule % group);
    const std::uint32_t all = p.data[0] | (mine + 1 == group ? 0u : next << 16);
    // The first byte that begins in this granule, as an index in the group. One more may begin in the granule.
    const unsigned first = (mine * granule_size + in_byte - 1) / in_byte;
    const unsigned ahead = first * in_byte - mine * granule_size;
    const std::size_t before = granule / group * ternary_group<Q>;
    const std::size_t rest = elements > before ? elements - before : 0;
    const std::size_t room = rest < ternary_group<Q> ? ceil_div(rest, codes_in_byte) : group_bytes<Q>;
    std::byte* const to = codes + granule / group * group_bytes<Q> + first;
#pragma unroll
    for (unsigned i = 0; i != 2; ++i) {
        if (ahead + i * in_byte < granule_size && first + i < room) {
            to[i] = static_cast<std::byte>(ternary_byte(all >> 2 * (ahead + i * in_byte)));
        }
    }
}

/// Number of successive granules with codes that one thread best moves together, by few and wide memory accesses. Four
/// for codes below 8 bits, and two for 8 bits; 1 for wider and for ternary codes.
template <quantizer Q>
inline constexpr int granules_together = ternary_quantizer<Q> || Q::code_bits > 8 ? 1
                                         : Q::code_bits == 8                      ? 2
                                                                                  : 4;

/// Codes of `Run` successive whole granules, of `Bits` bits each. The first granule's index in a section must be a
/// multiple of `Run`, so that accesses are aligned.
template <int Bits, int Run>
struct code_run {
    static constexpr int bytes = Run * Bits;
    std::uint32_t data[std::size_t{(bytes + 3) / 4}];

    __device__ static code_run load(const std::byte* from) {
        code_run r;
        load_words<bytes, true>(from, r.data);
        return r;
    }
    __device__ void store(std::byte* to) const { store_words<bytes>(to, data); }

    /// Codes of the k-th granule.
    __device__ packed_codes<Bits> at(int k) const {
        packed_codes<Bits> p;
#pragma unroll
        for (int w = 0; w != p.words; ++w) {
            const auto [word, shift, straddles] = place(k, w);
            p.data[w] = data[word] >> shift;
            if (straddles) p.data[w] |= data[word + 1] << (32 - shift);
            if (bytes_of(w) < 4) p.data[w] &= (1u << (8 * bytes_of(w))) - 1u;
        }
        return p;
    }
    /// Sets the codes of the k-th granule. Requires calls in ascending order of k: some calls clear later granules.
    __device__ void set(int k, const packed_codes<Bits>& p) {
#pragma unroll
        for (int w = 0; w != p.words; ++w) {
            const auto [word, shift, straddles] = place(k, w);
            data[word] = (shift == 0 ? 0u : data[word]) | p.data[w] << shift;
            if (straddles) data[word + 1] = p.data[w] >> (32 - shift);
        }
    }

private:
    /// Where a word of a granule's codes lies in `data`: from bit `shift` of `word` on, with an end in the next word if
    /// it `straddles`.
    struct word_place {
        int word;
        int shift;
        bool straddles;
    };
    __device__ static word_place place(int k, int w) {
        const int begin = k * Bits + 4 * w;
        return {begin / 4, begin % 4 * 8, begin % 4 + bytes_of(w) > 4};
    }
    /// Number of bytes of word `w` of a granule's codes.
    __device__ static int bytes_of(int w) { return Bits - 4 * w < 4 ? Bits - 4 * w : 4; }
};

}  // namespace zeropp::detail
