#pragma once
/// \file
/// The quantizers of a reduction, one for each hop.

#include <zeropp/core/text.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>

namespace zeropp {

/// Level `Level` of a topology as a type.
template <int Level>
using level_t = std::integral_constant<int, Level>;
/// Level `Level` of a topology as an argument, as in by_level.at(level<0>).
template <int Level>
inline constexpr level_t<Level> level{};

/// Quantizers of a reduction: one for each level of a topology, from level 0 on, and for an all-reduce one more, of the
/// all-gather phase. Over one level, an all-reduce takes the quantizers of two levels, and a reduce-scatter may. The
/// second quantizer is then not used.
///   hops{int8, int4}         a reduce-scatter: within the node in int8, between nodes in int4
///   hops{int8, int4, int8}   an all-reduce; or a reduce-scatter over three levels
template <quantizer... Quantizers>
class hops {
public:
    /// Number of quantizers, one for each hop.
    static constexpr int count = sizeof...(Quantizers);
    /// Type of the quantizer of level `Level`; at `count` - 1, an all-reduce's quantizer of the all-gather phase.
    template <int Level>
    using at_level = std::tuple_element_t<static_cast<std::size_t>(Level), std::tuple<Quantizers...>>;
    /// Number of elements of the largest block: a multiple of all block sizes, since these are powers of two.
    static constexpr int largest_block = std::max({Quantizers::block_size...});

    constexpr hops()
        requires(count > 0)
    = default;
    constexpr explicit hops(const Quantizers&... by_level)
        requires(count == 1)
        : quantizers_(by_level...) {}
    constexpr hops(const Quantizers&... by_level)
        requires(count > 1)
        : quantizers_(by_level...) {}

    /// The quantizer of level `Level`.
    template <int Level>
    constexpr const at_level<Level>& at(level_t<Level>) const {
        return std::get<Level>(quantizers_);
    }
    /// The last quantizer: in an all-reduce, of the all-gather phase.
    constexpr const auto& last() const { return std::get<count - 1>(quantizers_); }

    /// Calls f(quantizer) for each quantizer, in order.
    template <class F>
    constexpr void for_each(F f) const {
        std::apply([&](const Quantizers&... q) { (f(q), ...); }, quantizers_);
    }

    /// The names of the quantizers, joined by " + ".
    std::string name() const {
        std::string text;
        for_each([&](const auto& q) { text += (text.empty() ? "" : " + ") + short_text(q.name()).str(); });
        return text;
    }

private:
    std::tuple<Quantizers...> quantizers_;
};
template <class... Quantizers>
hops(Quantizers...) -> hops<Quantizers...>;

namespace detail {
/// True if `Hops` has as many quantizers as a reduce-scatter over `Levels` levels takes.
template <class Hops, int Levels>
inline constexpr bool reduce_scatters = Hops::count >= Levels && Hops::count <= std::max(Levels, 2);
/// True if `Hops` has as many quantizers as an all-reduce over `Levels` levels takes.
template <class Hops, int Levels>
inline constexpr bool all_reduces = Hops::count == std::max(Levels, 2) + 1;
}  // namespace detail

}  // namespace zeropp
