#pragma once
/// \file
/// Instructions of the kernels that C++ has no words for: wide accesses to memory, copies to shared memory, exchanges
/// between lanes, bytes and bits of words, products. Emulated kernels have them in C++.

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

/// `p`, which the compiler then knows to be in global memory: a pointer from a table could point to any memory.
template <class T>
__device__ T* into_global_memory(T* p) {
#if defined(__CUDA_ARCH__)
    return static_cast<T*>(__cvta_global_to_generic(__cvta_generic_to_global(p)));
#else
    return p;
#endif
}

/// Reads device memory; if `Constant`, memory that no kernel writes meanwhile.
template <bool Constant, class Word>
__device__ Word load_word(const Word* from) {
    if constexpr (Constant) {
        return __ldg(from);
    } else {
        return *from;
    }
}

/// The widest access to `Bytes` bytes that begin at a multiple of `Bytes` bytes from a 16-byte boundary.
template <int Bytes>
using widest_access = std::conditional_t<
    Bytes % 16 == 0, uint4,
    std::conditional_t<Bytes % 8 == 0, uint2,
                       std::conditional_t<Bytes % 4 == 0, std::uint32_t,
                                          std::conditional_t<Bytes % 2 == 0, std::uint16_t, std::uint8_t>>>>;

/// Loads `Bytes` bytes into the words `to`; the unused end of the last word is zero.
template <int Bytes, bool Constant, std::size_t N>
__device__ void load_words(const void* from, std::uint32_t (&to)[N]) {
    using access = widest_access<Bytes>;
#pragma unroll
    for (std::size_t i = 0; i != Bytes / sizeof(access); ++i) {
        const access part = load_word<Constant>(static_cast<const access*>(from) + i);
        if constexpr (sizeof(access) == 16) {
            to[4 * i] = part.x;
            to[4 * i + 1] = part.y;
            to[4 * i + 2] = part.z;
            to[4 * i + 3] = part.w;
        } else if constexpr (sizeof(access) == 8) {
            to[2 * i] = part.x;
            to[2 * i + 1] = part.y;
        } else {
            const std::size_t begin = i * sizeof(access);
            to[begin / 4] = (begin % 4 == 0 ? 0u : to[begin / 4]) | static_cast<std::uint32_t>(part) << begin % 4 * 8;
        }
    }
}

/// Stores the first `Bytes` bytes of the words `from`.
template <int Bytes>
__device__ void store_words(void* to, const std::uint32_t* from) {
    using access = widest_access<Bytes>;
#pragma unroll
    for (std::size_t i = 0; i != Bytes / sizeof(access); ++i) {
        access* const part = static_cast<access*>(to) + i;
        if constexpr (sizeof(access) == 16) {
            *part = uint4{from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]};
        } else if constexpr (sizeof(access) == 8) {
            *part = uint2{from[2 * i], from[2 * i + 1]};
        } else {
            const std::size_t begin = i * sizeof(access);
            *part = static_cast<access>(from[begin / 4] >> begin % 4 * 8);
        }
    }
}

/// Starts a copy of `Bytes` bytes (4, 8 or 16, which divide both addresses) from global to shared memory. The thread
/// finds them there after `wait_for_copies`; it does not touch either place before.
template <int Bytes>
__device__ void start_copy(void* to, const void* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
    const std::size_t global = __cvta_generic_to_global(from);
    if constexpr (Bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(global), "n"(Bytes) : "memory");
    }
#else
    using access = widest_access<Bytes>;
    *static_cast<access*>(to) = *static_cast<const access*>(from);
#endif
}

/// Makes a group of the copies that the thread has started since its last group.
__device__ inline void group_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits for the thread's groups of copies, except for the last `Later`.
template <int Later>
__device__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(Later) : "memory");
#endif
}

/// Transposes 16-byte words among N lanes: pieces[c] of lane l becomes pieces[l] of lane c. N is a power of two. All
/// threads of a warp must call this together.
template <std::size_t N>
__device__ void transpose_among_lanes(uint4 (&pieces)[N]) {
    static_assert(N <= 32 && (N & (N - 1)) == 0);
#pragma unroll
    for (unsigned distance = 1; distance < N; distance *= 2) {
        const bool upper = threadIdx.x & distance;
#pragma unroll
        for (std::size_t c = 0; c != N; ++c) {
            if ((c & distance) != 0) continue;
            const auto exchange = [=](std::uint32_t& low, std::uint32_t& high) {
                const std::uint32_t sent = upper ? low : high;
                const std::uint32_t other = __shfl_xor_sync(0xffffffffu, sent, static_cast<int>(distance));
                if (upper) {
                    low = other;
                } else {
                    high = other;
                }
            };
            exchange(pieces[c].x, pieces[c + distance].x);
            exchange(pieces[c].y, pieces[c + distance].y);
            exchange(pieces[c].z, pieces[c + distance].z);
            exchange(pieces[c].w, pieces[c + distance].w);
        }
    }
}

/// Upper word of high:low shifted left by `left` bits.
__device__ inline std::uint32_t funnel_shift(std::uint32_t low, std::uint32_t high, unsigned left) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_l(low, high, left);
#else
    return static_cast<std::uint32_t>(((static_cast<std::uint64_t>(high) << 32 | low) << left) >> 32);
#endif
}

/// Four bytes of high:low. Each four bits of `selector`, lowest first, select one byte.
__device__ inline std::uint32_t selected_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(low, high, selector);
#else
    const std::uint64_t bytes = low | static_cast<std::uint64_t>(high) << 32;
    std::uint32_t word = 0;
    for (int i = 0; i != 4; ++i) {
        word |= static_cast<std::uint32_t>(bytes >> (selector >> (4 * i) & 7u) * 8 & 0xffu) << (8 * i);
    }
    return word;
#endif
}

/// (word & mask) ^ other, as one instruction.
__device__ inline std::uint32_t masked_exclusive_or(std::uint32_t word, std::uint32_t mask, std::uint32_t other) {
#if defined(__CUDA_ARCH__)
    asm("lop3.b32 %0, %0, %1, %2, 0x6a;" : "+r"(word) : "r"(mask), "r"(other));
    return word;
#else
    return (word & mask) ^ other;
#endif
}

/// a * b, rounded before anything is added. Keeps a zero's sign, as `product` does not.
__device__ inline float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#else
    const volatile float rounded = a * b;  // not fused with a later addition
    return rounded;
#endif
}

/// 1 / x, correctly rounded.
__device__ inline float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
    return __frcp_rn(x);
#else
    return 1.0f / x;
#endif
}

/// a * b + c, rounded once.
__device__ inline float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

}  // namespace zeropp::detail
