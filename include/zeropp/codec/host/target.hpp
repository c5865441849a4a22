#pragma once
/// \file
/// Compiles loops for several instruction sets, and runs the best one that the processor has, without -march. All files
/// of a program need the same -march, or none: of an inline function, the linker keeps any file's copy.
///
/// All instruction sets give the same bits, because compilers cannot contract or reassociate the arithmetic of
/// quantizers (core/math.hpp).

#include <cstddef>
#include <span>

namespace zeropp::detail {

/// Unrolls the following loop, of at most `turns` turns; 1 forbids unrolling. Empty for nvcc, which does not pass the
/// pragma on to its host compiler.
#if defined(__CUDACC__)
#define ZEROPP_DETAIL_UNROLL(turns)
#else
#define ZEROPP_DETAIL_PRAGMA(text) _Pragma(#text)
#define ZEROPP_DETAIL_UNROLL(turns) ZEROPP_DETAIL_PRAGMA(GCC unroll turns)
#endif

/// Makes clang inline all functions from here to ZEROPP_DETAIL_INLINE_END. Otherwise clang compiles them without the
/// instruction set of their callers. Other compilers need no such mark.
#if defined(__clang__)
#define ZEROPP_DETAIL_INLINE_BEGIN _Pragma("clang attribute push(__attribute__((always_inline)), apply_to = function)")
#define ZEROPP_DETAIL_INLINE_END _Pragma("clang attribute pop")
#else
#define ZEROPP_DETAIL_INLINE_BEGIN
#define ZEROPP_DETAIL_INLINE_END
#endif

/// Instruction sets that loops are compiled for. `avx512` includes VBMI (Ice Lake, Zen 4), which narrows 32 bits to
/// bytes in half of Skylake's permutations. Skylake, where wide vectors cost clock frequency, runs `avx2`.
enum class host_target { baseline, avx2, avx512 };

/// An instruction set as the type of an argument.
template <host_target Target>
struct target_type {
    static constexpr host_target value = Target;
};

// nvcc 12 lacks __builtin_shufflevector.
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) &&                                                \
    !(defined(__CUDACC__) && __CUDACC_VER_MAJOR__ < 13)
#define ZEROPP_DETAIL_HAS_WIDE_TARGETS 1

// GCC needs `optimize`, because its -O2 leaves most loops scalar, and a preferred width, because its default is half of
// the widest. Clang accepts neither. GCC 14 at -O0 and -O1 loses the target if `optimize` comes after `target`.
#if defined(__clang__)
#define ZEROPP_DETAIL_TARGET(instructions) [[gnu::target(instructions), gnu::flatten, gnu::noinline]]
#define ZEROPP_DETAIL_WIDEST
#else
#define ZEROPP_DETAIL_TARGET(instructions)                                                                             \
    [[gnu::optimize("O3"), gnu::target(instructions), gnu::flatten, gnu::noinline]]
#define ZEROPP_DETAIL_WIDEST ",prefer-vector-width=512"
#endif

/// True if loops are compiled for wider vectors than `baseline` has. Then only old processors run `baseline`, which
/// need not be fast.
inline constexpr bool has_wide_targets = true;

/// Calls work(target_type), compiled for AVX-512. Requires a processor with AVX-512 VBMI.
template <class Work>
ZEROPP_DETAIL_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi" ZEROPP_DETAIL_WIDEST)
void run_avx512(const Work& work) {
    work(target_type<host_target::avx512>());
}
/// Calls work(target_type), compiled for AVX2. Requires a processor with AVX2 and FMA.
template <class Work>
ZEROPP_DETAIL_TARGET("avx2,fma")
void run_avx2(const Work& work) {
    work(target_type<host_target::avx2>());
}

#undef ZEROPP_DETAIL_WIDEST
#undef ZEROPP_DETAIL_TARGET

/// Calls work(target_type), compiled for `target`, which must be `avx2` or `avx512`. Requires a processor with these
/// instructions.
template <class Work>
void run_on_target(host_target target, const Work& work) {
    if (target == host_target::avx512) {
        run_avx512(work);
    } else {
        run_avx2(work);
    }
}

/// The values of host_target that the processor supports, the best one last.
inline std::span<const host_target> host_targets() noexcept {
    static constexpr host_target all[] = {host_target::baseline, host_target::avx2, host_target::avx512};
    static const std::size_t available = []() -> std::size_t {
        __builtin_cpu_init();
        if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 1;
        const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512vbmi");
        return avx512 ? 3 : 2;
    }();
    return std::span(all).first(available);
}

#else
#define ZEROPP_DETAIL_HAS_WIDE_TARGETS 0

inline constexpr bool has_wide_targets = false;

template <class Work>
void run_on_target(host_target, const Work& work) {
    work(target_type<host_target::baseline>());
}

inline std::span<const host_target> host_targets() noexcept {
    static constexpr host_target all[] = {host_target::baseline};
    return all;
}

#endif

/// Reference to the instruction set in use: the processor's best one, unless a test assigns another.
inline host_target& active_host_target() noexcept {
    static host_target active = host_targets().back();
    return active;
}

}  // namespace zeropp::detail
