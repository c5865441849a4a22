#pragma once
/// \file
/// Instructions of the kernels that C++ has no words for: wide accesses to memory, copies to shared memory, exchanges
/// between lanes, work on bytes and bits. Kernels emulated on the host use equal C++.

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

/// Number of the calling thread in its warp, from 0. Requires thread blocks of one dimension.
__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % 32; }
/// Number of the calling thread's warp in its thread block, from 0. Requires thread blocks of one dimension.
__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / 32; }

/// Returns `p`, which must point to global memory, so that the compiler knows this. Of a pointer from a table, the
/// compiler cannot tell.
template <class T>
__device__ T* into_global_memory(T* p) {
#if defined(__CUDA_ARCH__)
    return static_cast<T*>(__cvta_global_to_generic(__cvta_generic_to_global(p)));
#else
    return p;
#endif
}

/// Returns `p`, which must point to global memory. The compiler cannot see how `p` was computed, so it keeps `p` in
/// registers. Otherwise it adds up addresses anew for every tile, which takes more instructions.
template <class T>
__device__ T* kept_address(T* p) {
#if defined(__CUDA_ARCH__)
    std::size_t address = __cvta_generic_to_global(p);
    asm("" : "+l"(address));
    return static_cast<T*>(__cvta_global_to_generic(address));
#else
    return p;
#endif
}

/// Loads one word. `Constant`: it is in global memory, and nothing writes it while the kernel runs.
template <bool Constant, class Word>
__device__ Word load_word(const Word* from) {
    if constexpr (Constant) {
        return __ldg(from);
    } else {
        return *from;
    }
}

/// Type of the widest memory access, at most 16 bytes, that divides `Bytes` bytes. It is aligned if the bytes begin at
/// a multiple of `Bytes` bytes from a 16-byte boundary.
template <int Bytes>
using widest_access = std::conditional_t<
    Bytes % 16 == 0, uint4,
    std::conditional_t<Bytes % 8 == 0, uint2,
                       std::conditional_t<Bytes % 4 == 0, std::uint32_t,
                                          std::conditional_t<Bytes % 2 == 0, std::uint16_t, std::uint8_t>>>>;

/// Loads `Bytes` bytes into the words `to`; the unused end of the last word is zero. `from` must be a multiple of
/// `Bytes` bytes from a 16-byte boundary. `Constant`: the bytes are in global memory, and nothing writes them while the
/// kernel runs.
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

/// Stores `Bytes` bytes of the words `from`. `to` must be a multiple of `Bytes` bytes from a 16-byte boundary. `Whole`:
/// `to` is in global memory, and nvcc 13.0 would make four stores of 16 bytes. Then assembly keeps them whole.
/// Elsewhere, assembly would only cost addresses.
template <int Bytes, bool Whole = false>
__device__ void store_words(void* to, const std::uint32_t* from) {
    using access = widest_access<Bytes>;
#pragma unroll
    for (std::size_t i = 0; i != Bytes / sizeof(access); ++i) {
        access* const part = static_cast<access*>(to) + i;
        if constexpr (sizeof(access) == 16) {
#if defined(__CUDA_ARCH__)
            if constexpr (Whole) {
                asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(part)),
                             "r"(from[4 * i]), "r"(from[4 * i + 1]), "r"(from[4 * i + 2]), "r"(from[4 * i + 3])
                             : "memory");
                continue;
            }
#endif
            *part = uint4{from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]};
        } else if constexpr (sizeof(access) == 8) {
            *part = uint2{from[2 * i], from[2 * i + 1]};
        } else {
            const std::size_t begin = i * sizeof(access);
            *part = static_cast<access>(from[begin / 4] >> begin % 4 * 8);
        }
    }
}

/// Starts an asynchronous copy of 4, 8 or 16 bytes from global to shared memory. `Bytes` must divide both addresses.
/// The calling thread may touch either place after `group_copies` and `wait_for_copies`, not before.
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

/// Makes a group of the asynchronous copies that the calling thread has started since its last group.
__device__ inline void group_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until the calling thread's groups of asynchronous copies are complete, except the last `Later` groups.
template <int Later>
__device__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(Later) : "memory");
#endif
}

/// Transposes 16-byte words among each N neighbouring lanes: pieces[c] of lane l becomes pieces[l] of lane c. N is a
/// power of two up to 32. All threads of a warp must call this together.
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

/// Number of bits of `word` that are 1.
__device__ inline std::uint32_t count_bits(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
    return static_cast<std::uint32_t>(__popc(word));
#else
    return static_cast<std::uint32_t>(__builtin_popcount(word));
#endif
}

/// Sums of one number of each lane of a warp, in the order of lanes. All threads of a warp must make one together.
struct warp_scan {
    /// The sum of the numbers of all lanes before this one.
    std::uint32_t before = 0;
    /// The sum of the numbers of all lanes.
    std::uint32_t total;

    __device__ explicit warp_scan(std::uint32_t x) : total(x) {
#pragma unroll
        for (unsigned distance = 1; distance != 32; distance *= 2) {
            const std::uint32_t other = __shfl_xor_sync(0xffffffffu, total, static_cast<int>(distance));
            if ((threadIdx.x & distance) != 0) before += other;
            total += other;
        }
    }
};

/// The sum of one number of each lane of a warp. All threads of a warp must call this together.
__device__ inline std::uint32_t sum_of_warp(std::uint32_t x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_add_sync(0xffffffffu, x);
#else
    return warp_scan(x).total;
#endif
}

/// The upper 32 of the 64 bits high:low, shifted left by `left` bits, 0 to 31.
__device__ inline std::uint32_t funnel_shift(std::uint32_t low, std::uint32_t high, unsigned left) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_l(low, high, left);
#else
    return static_cast<std::uint32_t>(((static_cast<std::uint64_t>(high) << 32 | low) << left) >> 32);
#endif
}

/// Word of four of the eight bytes high:low, numbered from 0, the lowest. Bits [4 * i, 4 * i + 4) of `selector` are the
/// number of the byte that becomes byte i.
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

/// Two halves of 16 bits, each filled with the highest bit of that half of `word`.
__device__ inline std::uint32_t signs_of_halves(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
    asm("prmt.b32 %0, %0, 0, 0xbb99;" : "+r"(word));
    return word;
#else
    return (word >> 15 & 0x00010001u) * 0xffffu;
#endif
}

/// The lesser integer of `a` and `b` in each half of 16 bits. Requires integers below 0x7c00: as bits of floats of 16
/// bits, these have the order of integers.
__device__ inline std::uint32_t lesser_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
    asm("min.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
#else
    const auto lesser = [=](std::uint32_t half) { return (a & half) < (b & half) ? a & half : b & half; };
    return lesser(0xffffu) | lesser(0xffff0000u);
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

/// a * b, rounded: never fused with a later addition. Keeps the sign of a zero, unlike `product` (core/math.hpp).
__device__ inline float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#else
    const volatile float rounded = a * b;  // volatile: not fused with a later addition
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
