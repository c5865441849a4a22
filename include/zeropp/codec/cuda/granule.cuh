#pragma once
/// \file
/// Eight elements: what one thread handles at a time. Eight codes of any width fill whole bytes, and eight 16-bit
/// elements are one 16-byte access.

#include <zeropp/core/element.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zeropp::detail {

inline constexpr int granule_size = 8;

/// Eight elements as they lie in memory, in 16-byte words where their size allows.
template <class T>
struct raw_granule {
    static constexpr int bytes = granule_size * static_cast<int>(sizeof(T));
    static constexpr bool wide = bytes % 16 == 0;
    static constexpr int loads = wide ? bytes / 16 : granule_size;

    alignas(wide ? 16 : alignof(T)) unsigned char data[static_cast<std::size_t>(bytes)];

    __device__ T at(int i) const {
        T x;
        memcpy(&x, data + i * static_cast<int>(sizeof(T)), sizeof(T));
        return x;
    }
    __device__ void set(int i, T x) { memcpy(data + i * static_cast<int>(sizeof(T)), &x, sizeof(T)); }
};

/// Eight elements that exist. `aligned` says that they start on a 16-byte boundary.
template <class T>
__device__ raw_granule<T> load_whole_granule(const T* from, bool aligned) {
    raw_granule<T> r;
    if constexpr (raw_granule<T>::wide) {
        if (aligned) {
            const uint4* words = reinterpret_cast<const uint4*>(from);
#pragma unroll
            for (int w = 0; w != raw_granule<T>::loads; ++w) {
                const uint4 word = words[w];
                memcpy(r.data + 16 * w, &word, 16);
            }
            return r;
        }
    }
#pragma unroll
    for (int i = 0; i != granule_size; ++i) r.set(i, from[i]);
    return r;
}

template <class T>
__device__ void store_whole_granule(T* to, const raw_granule<T>& r, bool aligned) {
    if constexpr (raw_granule<T>::wide) {
        if (aligned) {
            uint4* words = reinterpret_cast<uint4*>(to);
#pragma unroll
            for (int w = 0; w != raw_granule<T>::loads; ++w) {
                uint4 word;
                memcpy(&word, r.data + 16 * w, 16);
                words[w] = word;
            }
            return;
        }
    }
#pragma unroll
    for (int i = 0; i != granule_size; ++i) to[i] = r.at(i);
}

/// The first `valid` of eight elements, 0 to 8; the others are zeros.
template <class T>
__device__ raw_granule<T> load_part_granule(const T* from, int valid) {
    raw_granule<T> r;
#pragma unroll
    for (int i = 0; i != granule_size; ++i) {
        T x{};
        if (i < valid) x = from[i];
        r.set(i, x);
    }
    return r;
}

template <class T>
__device__ void store_part_granule(T* to, const raw_granule<T>& r, int valid) {
#pragma unroll
    for (int i = 0; i != granule_size; ++i) {
        if (i < valid) to[i] = r.at(i);
    }
}

/// The widest word in which the Bits bytes of eight codes can be accessed: they start at a multiple of Bits bytes from
/// a 16-byte boundary.
template <int Bits>
struct code_words {
    static constexpr int bytes = Bits;
    static constexpr int width = Bits % 16 == 0 ? 16 : Bits % 8 == 0 ? 8 : Bits % 4 == 0 ? 4 : Bits % 2 == 0 ? 2 : 1;

    alignas(16) unsigned char data[static_cast<std::size_t>((Bits + 7) / 8 * 8)];
};

template <int Bytes>
struct word_of;
template <>
struct word_of<1> {
    using type = std::uint8_t;
};
template <>
struct word_of<2> {
    using type = std::uint16_t;
};
template <>
struct word_of<4> {
    using type = std::uint32_t;
};
template <>
struct word_of<8> {
    using type = uint2;
};
template <>
struct word_of<16> {
    using type = uint4;
};

/// Reads the codes of eight elements. `elements` is 8, or fewer for the last of a message, whose bytes end earlier.
template <int Bits>
__device__ code_words<Bits> load_codes(const std::byte* from, int elements) {
    code_words<Bits> w;
    if (elements == granule_size) {
        using word = typename word_of<code_words<Bits>::width>::type;
#pragma unroll
        for (int i = 0; i != Bits / code_words<Bits>::width; ++i) {
            const word x = __ldg(reinterpret_cast<const word*>(from) + i);
            memcpy(w.data + i * static_cast<int>(sizeof(word)), &x, sizeof(word));
        }
    } else {
        const int bytes = (elements * Bits + 7) / 8;
#pragma unroll
        for (int i = 0; i != Bits; ++i) w.data[i] = i < bytes ? static_cast<unsigned char>(from[i]) : 0;
    }
    return w;
}

template <int Bits>
__device__ void store_codes(std::byte* to, const code_words<Bits>& w, int elements) {
    if (elements == granule_size) {
        using word = typename word_of<code_words<Bits>::width>::type;
#pragma unroll
        for (int i = 0; i != Bits / code_words<Bits>::width; ++i) {
            word x;
            memcpy(&x, w.data + i * static_cast<int>(sizeof(word)), sizeof(word));
            reinterpret_cast<word*>(to)[i] = x;
        }
    } else {
        const int bytes = (elements * Bits + 7) / 8;
#pragma unroll
        for (int i = 0; i != Bits; ++i) {
            if (i < bytes) to[i] = static_cast<std::byte>(w.data[i]);
        }
    }
}

/// Eight codes to dense bits and back, first code lowest.
template <int Bits>
__device__ code_words<Bits> pack_codes(const std::uint32_t (&codes)[granule_size]) {
    code_words<Bits> w;
    if constexpr (Bits == 16 || Bits == 32) {
#pragma unroll
        for (int i = 0; i != granule_size; ++i) memcpy(w.data + i * (Bits / 8), &codes[i], Bits / 8);
    } else if constexpr (32 % Bits == 0) {
        constexpr int per_word = 32 / Bits < granule_size ? 32 / Bits : granule_size;
#pragma unroll
        for (int first = 0; first != granule_size; first += per_word) {
            std::uint32_t word = 0;
#pragma unroll
            for (int i = 0; i != per_word; ++i) word |= codes[first + i] << (i * Bits);
            memcpy(w.data + first * Bits / 8, &word, 4);
        }
    } else {
        std::uint64_t word = 0;
#pragma unroll
        for (int i = 0; i != granule_size; ++i) word |= static_cast<std::uint64_t>(codes[i]) << (i * Bits);
        memcpy(w.data, &word, 8);
    }
    return w;
}

template <int Bits>
__device__ std::uint32_t code_at(const code_words<Bits>& w, int i) {
    if constexpr (Bits == 16 || Bits == 32) {
        std::uint32_t code = 0;
        memcpy(&code, w.data + i * (Bits / 8), Bits / 8);
        return code;
    } else if constexpr (32 % Bits == 0) {
        std::uint32_t word;
        memcpy(&word, w.data + i * Bits / 32 * 4, 4);
        return (word >> (i * Bits % 32)) & ((1u << Bits) - 1u);
    } else {
        std::uint64_t word;
        memcpy(&word, w.data, 8);
        return static_cast<std::uint32_t>(word >> (i * Bits)) & ((1u << Bits) - 1u);
    }
}

}  // namespace zeropp::detail
