#pragma once
/// \file
/// Loops over elements in pieces, with the instructions of the processor at hand.

#include <zeropp/codec/host/target.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// Values are handled in pieces that stay in the first-level cache. A multiple of 8, so that pieces end on bytes.
inline constexpr std::size_t piece_size = 256;

/// A number of elements that is a multiple of `Unit`, by its type.
template <std::size_t Unit>
struct multiple_of {
    std::size_t value;

    constexpr operator std::size_t() const { return value; }
};

/// Whether a number of elements is known to be a multiple of N, by its type.
template <class Size, std::size_t N>
inline constexpr bool is_multiple_of = false;
template <std::size_t Size, std::size_t N>
inline constexpr bool is_multiple_of<std::integral_constant<std::size_t, Size>, N> = Size % N == 0;
template <std::size_t Unit, std::size_t N>
inline constexpr bool is_multiple_of<multiple_of<Unit>, N> = Unit % N == 0;

/// Calls f(begin, n) for successive pieces of `Piece` of `size` elements. For whole pieces n is a constant, by type:
/// loops over them need no code for what is left over.
template <std::size_t Piece, class F>
void for_each_piece(std::size_t size, const F& f) {
    std::size_t begin = 0;
    for (; size - begin >= Piece; begin += Piece) f(begin, std::integral_constant<std::size_t, Piece>());
    if (begin != size) f(begin, size - begin);
}
template <std::size_t Piece, std::size_t Size, class F>
void for_each_piece(std::integral_constant<std::size_t, Size> size, const F& f) {
    constexpr std::size_t piece = std::min(Piece, Size);
    static_assert(Size % piece == 0);
    for (std::size_t begin = 0; begin != size; begin += piece) f(begin, std::integral_constant<std::size_t, piece>());
}
template <std::size_t Piece, std::size_t Unit, class F>
void for_each_piece(multiple_of<Unit> size, const F& f) {
    if constexpr (Piece <= Unit) {
        static_assert(Unit % Piece == 0);
        for (std::size_t begin = 0; begin != size; begin += Piece) {
            f(begin, std::integral_constant<std::size_t, Piece>());
        }
    } else {
        static_assert(Piece % Unit == 0);
        for (std::size_t begin = 0; begin != size;) {
            const multiple_of<Unit> some{std::min(Piece, size - begin)};
            f(begin, some);
            begin += some;
        }
    }
}

/// The outermost of such loops: in pieces of no more than `Piece`, the whole units with the instructions of the
/// processor at hand, and what is left over, which is little, without the code size of that. The baseline of a
/// processor that may have wider instructions shares the code of what is left over.
template <std::size_t Piece, std::size_t Unit, class F>
void for_each_piece_on_target(std::size_t size, const F& f) {
    std::size_t begin = 0;
    const auto whole_units = [&] {
        for_each_piece<Piece>(multiple_of<Unit>{size / Unit * Unit}, f);
        begin = size / Unit * Unit;
    };
    if constexpr (!has_wide_targets) {
        whole_units();
    } else if (size >= Unit && active_host_target() != host_target::baseline) {
        run_on_target(active_host_target(), whole_units);
    }
    for (; begin != size; begin += std::min(Piece, size - begin)) f(begin, std::min(Piece, size - begin));
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
