#pragma once
/// \file
/// The quantizers of a reduction, one for each hop.

#include <zeropp/core/config.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>

namespace zeropp {

/// A level of a topology as a type and as its only value: by_level.at(level<0>).
template <int Level>
using level_t = std::integral_constant<int, Level>;
template <int Level>
inline constexpr level_t<Level> level{};

/// Quantizers of a reduction: one for each level of a topology, from the innermost, and for an all-reduce one more, of
/// the all-gather phase. A topology of one level takes the quantizers of two levels, and does not use the second.
///   hops{int8, int4}         a reduce-scatter: within the node in int8, between nodes in int4
///   hops{int8, int4, int8}   an all-reduce; or a reduce-scatter over three levels
template <quantizer... Quantizers>
class hops {
public:
    /// Number of quantizers.
    static constexpr int count = sizeof...(Quantizers);
    /// The quantizer of level `Level`, or the last one of an all-reduce.
    template <int Level>
    using at_level = std::tuple_element_t<static_cast<std::size_t>(Level), std::tuple<Quantizers...>>;
    /// Elements of the largest block. Block sizes are powers of two, so it is a multiple of the others.
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

    /// That quantizer, and the last one.
    template <int Level>
    constexpr const at_level<Level>& at(level_t<Level>) const {
        return std::get<Level>(quantizers_);
    }
    constexpr const auto& last() const { return std::get<count - 1>(quantizers_); }

    /// Calls f(quantizer) for each, in order.
    template <class F>
    constexpr void for_each(F f) const {
        std::apply([&](const Quantizers&... q) { (f(q), ...); }, quantizers_);
    }

    /// The names, joined by " + ".
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
/// True for the quantizers of a reduce-scatter over `Levels` levels, and for the quantizers of an all-reduce.
template <class Hops, int Levels>
inline constexpr bool reduce_scatters = Hops::count >= Levels && Hops::count <= std::max(Levels, 2);
template <class Hops, int Levels>
inline constexpr bool all_reduces = Hops::count == std::max(Levels, 2) + 1;
}  // namespace detail

}  // namespace zeropp
