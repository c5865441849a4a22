#pragma once
/// \file
/// Loops over elements in tiles (`piece`), compiled for the processor's instructions.

#include <zeropp/codec/host/target.hpp>

#include <algorithm>
#include <cstddef>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// Elements of a tile, which stays in the first-level cache. A multiple of 8, so that its codes end on a byte.
inline constexpr std::size_t piece_size = 256;

/// Element counts known by type: the constant `Size`, or a multiple of `Unit`, in a loop compiled for `Target`. Code
/// for other counts and targets is then not compiled.
template <std::size_t Size, host_target Target>
struct exactly {
    constexpr operator std::size_t() const { return Size; }
};
template <std::size_t Unit, host_target Target>
struct multiple_of {
    std::size_t value;

    constexpr operator std::size_t() const { return value; }
};

/// True if `Size` says that the count is a multiple of N, in a loop for `Target`.
template <class Size, host_target Target, std::size_t N>
inline constexpr bool is_multiple_on = false;
template <std::size_t Size, host_target Target, std::size_t N>
inline constexpr bool is_multiple_on<exactly<Size, Target>, Target, N> = Size % N == 0;
template <std::size_t Unit, host_target Target, std::size_t N>
inline constexpr bool is_multiple_on<multiple_of<Unit, Target>, Target, N> = Unit % N == 0;

/// Calls f(begin, n) for successive tiles of `Piece` elements; the last may be shorter. If the type of `size` excludes
/// that, n is a constant by type: loops need no remainder.
template <std::size_t Piece, class F>
void for_each_piece(std::size_t size, const F& f) {
    for (std::size_t begin = 0; begin != size; begin += std::min(Piece, size - begin)) {
        f(begin, std::min(Piece, size - begin));
    }
}
template <std::size_t Piece, std::size_t Size, host_target Target, class F>
void for_each_piece(exactly<Size, Target> size, const F& f) {
    constexpr std::size_t piece = std::min(Piece, Size);
    static_assert(Size % piece == 0);
    for (std::size_t begin = 0; begin != size; begin += piece) f(begin, exactly<piece, Target>());
}
template <std::size_t Piece, std::size_t Unit, host_target Target, class F>
void for_each_piece(multiple_of<Unit, Target> size, const F& f) {
    if constexpr (Piece <= Unit) {
        static_assert(Unit % Piece == 0);
        for (std::size_t begin = 0; begin != size; begin += Piece) f(begin, exactly<Piece, Target>());
    } else {
        static_assert(Piece % Unit == 0);
        for (std::size_t begin = 0; begin != size;) {
            const multiple_of<Unit, Target> some{std::min(Piece, size - begin)};
            f(begin, some);
            begin += some;
        }
    }
}

/// Calls f(begin, n) for tiles of at most `Piece` elements. Whole multiples of `Unit` run with the active target's
/// instructions. The short remainder runs in smaller baseline code, and so does everything on a baseline processor if
/// there are wider targets.
template <std::size_t Piece, std::size_t Unit, class F>
void for_each_piece_on_target(std::size_t size, const F& f) {
    std::size_t begin = 0;
    const host_target active = active_host_target();
    if (!has_wide_targets || (size >= Unit && active != host_target::baseline)) {
        begin = size / Unit * Unit;
        run_on_target(active, [=, &f](auto target) {
            for_each_piece<Piece>(multiple_of<Unit, decltype(target)::value>{begin}, f);
        });
    }
    for_each_piece<Piece>(size - begin, [&](std::size_t done, std::size_t n) { f(begin + done, n); });
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
