#pragma once
/// \file
/// Loops of the host codec: over tiles, which stay in the first-level cache, and over parts, which threads divide.

#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/slices.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// Number of elements of a tile. A tile stays in the first-level cache. A multiple of 8, so that codes end on a byte.
inline constexpr std::size_t piece_size = 256;

/// The element count `Size` of a loop that is compiled for `Target`, as a type: code for other counts and targets is
/// not compiled.
template <std::size_t Size, host_target Target>
struct exactly {
    constexpr operator std::size_t() const { return Size; }
};
/// An element count of a loop that is compiled for `Target`, with a type that says that it is a multiple of `Unit`.
template <std::size_t Unit, host_target Target>
struct multiple_of {
    std::size_t value;

    constexpr operator std::size_t() const { return value; }
};

/// True if the type `Size` of a count says that it is a multiple of N, in a loop that is compiled for `Target`.
template <class Size, host_target Target, std::size_t N>
inline constexpr bool is_multiple_on = false;
template <std::size_t Size, host_target Target, std::size_t N>
inline constexpr bool is_multiple_on<exactly<Size, Target>, Target, N> = Size % N == 0;
template <std::size_t Unit, host_target Target, std::size_t N>
inline constexpr bool is_multiple_on<multiple_of<Unit, Target>, Target, N> = Unit % N == 0;

/// Calls f(begin, n) for successive tiles of `Piece` elements; the last tile may be shorter.
template <std::size_t Piece, class F>
void for_each_piece(std::size_t size, const F& f) {
    for (std::size_t begin = 0; begin != size; begin += std::min(Piece, size - begin)) {
        f(begin, std::min(Piece, size - begin));
    }
}
/// Calls f(begin, n) for successive tiles of min(Piece, Size) elements. n is a constant by its type, so that loops over
/// the tile need no remainder. Requires `Size` to be a multiple of `Piece`, or smaller.
template <std::size_t Piece, std::size_t Size, host_target Target, class F>
void for_each_piece(exactly<Size, Target> size, const F& f) {
    constexpr std::size_t piece = std::min(Piece, Size);
    static_assert(Size % piece == 0);
    for (std::size_t begin = 0; begin != size; begin += piece) f(begin, exactly<piece, Target>());
}
/// Calls f(begin, n) for successive tiles of `Piece` elements; the last tile may be shorter if `Unit` is less. The type
/// of n says that n is `Piece` or, if `Unit` is less, a multiple of `Unit`. Requires that one of the two divides the
/// other.
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

/// Calls f(begin, n) for successive tiles of at most `Piece` elements. f runs with the instruction set in use, but as
/// baseline code for the last size % `Unit` elements. On an x86 processor without AVX2, f runs as baseline code alone.
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

/// One thread's share of a loop over parts of at most `most` elements. Every thread visits all parts in the same order,
/// and each part is taken by one thread.
class share {
public:
    /// Number of elements of the largest part: a multiple of all block sizes, and enough work for a turn of a thread.
    static constexpr std::size_t most = 65536;

    /// The share of a single thread: takes all parts.
    share() = default;
    /// One of several shares, which divide the parts by a common counter `next`. The counter begins at 0.
    explicit share(std::atomic<std::size_t>& next) : next_(&next) {}

    /// True if this thread takes the next part, of n <= `most` elements.
    bool takes(std::size_t n) {
        if (next_ == nullptr) return true;
        // One thread takes all parts that begin in the same `most` elements, because tensors may be small and many.
        const std::size_t run = passed_ / most;
        passed_ += n;
        for (; taken_ <= run; taken_ = next_->fetch_add(1, std::memory_order_relaxed) + 1) {
        }
        return taken_ == run + 1;
    }

private:
    std::atomic<std::size_t>* next_ = nullptr;
    std::size_t passed_ = 0;
    /// 1 + index of the run of `most` elements that this thread took last; 0 before the first.
    std::size_t taken_ = 0;
};

/// Part of a section in one slot, which one thread takes: elements [first, first + count) of section `of`, of index
/// `i`.
struct section_part {
    const section& of;
    std::size_t i;
    int slot;
    std::size_t first;
    std::size_t count;
    /// True for the section's last part in this slot. A section without elements has one part, which is empty.
    bool last;
};

/// Order of parts: slot after slot, as messages lie, or section after section, as tensors lie.
enum class part_order { messages, tensors };

/// Calls visit(section_part) for each part that `mine` takes, of all slots of `where`.
template <class Slices, class Visit>
void for_each_part(const Slices& where, part_order order, share mine, const Visit& visit) {
    const auto visit_section = [&](std::size_t i, int s) {
        const section of = where.at(i);
        const std::size_t size = of.size(where.rank(s));
        std::size_t first = 0;
        do {
            const std::size_t n = std::min(share::most, size - first);
            if (mine.takes(n)) visit(section_part{of, i, s, first, n, first + n == size});
            first += n;
        } while (first != size);
    };
    if (order == part_order::messages) {
        for (int s = 0; s != where.slots; ++s) {
            for (std::size_t i = 0; i != where.sections(); ++i) visit_section(i, s);
        }
        return;
    }
    for (std::size_t i = 0; i != where.sections(); ++i) {
        // Node by node: shards lie so in memory if a node's ranks are consecutive. Another order would halve the speed.
        for (int group = 0; group != where.order.groups; ++group) {
            for (int s = group; s < where.slots; s += where.order.groups) visit_section(i, s);
        }
    }
}

/// Calls work(share) on each of `threads`. Calls it once, on this thread, if `threads` is null or all slots together
/// have at most one part's elements. Each call computes in the default floating-point mode.
template <class Slices, class Work>
void divide(const host_threads* threads, const Slices& where, const Work& work) {
    const std::size_t sections = where.sections();
    const std::size_t of_slot = sections == 0 ? 0 : where.elements_end(sections - 1);
    const bool several = threads != nullptr && static_cast<std::size_t>(where.slots) * of_slot > share::most;
    std::atomic<std::size_t> next = 0;
    const auto go = [&] {
        const default_arithmetic by_default;
        work(several ? share(next) : share());
    };
    if (several) {
        threads->on_each(go);
    } else {
        go();
    }
}

}  // namespace zeropp::detail
