#pragma once
/// \file
/// The tensors' numbers: any rank can compute any other rank's tensor, without communication.

#include <zeropp/core/element.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/layout/partition.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace zeropp_bench {

/// Element `index` of the tensor `seed`: about normal, with variance 1.
inline float value_at(std::uint64_t seed, std::size_t index) {
    std::uint64_t z = (static_cast<std::uint64_t>(index) + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    std::uint32_t sum = 0;
    for (int k = 0; k != 4; ++k) sum += static_cast<std::uint32_t>(z >> (16 * k) & 0xffffu);
    return (static_cast<float>(sum) - 131070.0f) * (1.0f / 37837.0f);
}

/// Writes elements of the tensor `seed`, from element `first` on, rounded to T.
template <class T>
void fill(std::span<T> elements, std::uint64_t seed, std::size_t first) {
    for (std::size_t i = 0; i != elements.size(); ++i) {
        elements[i] = zeropp::element_traits<T>::from_float(value_at(seed, first + i));
    }
}

/// Writes the values of fill<T> in double.
template <class T>
void fill_exact(std::span<double> values, std::uint64_t seed, std::size_t first) {
    using traits = zeropp::element_traits<T>;
    for (std::size_t i = 0; i != values.size(); ++i) {
        values[i] = static_cast<double>(traits::to_float(traits::from_float(value_at(seed, first + i))));
    }
}

/// Sets all elements of `array` to 0.
template <class Array>
void clear(Array& array) {
    array.write([]<class T>(std::span<T> all) { std::fill(all.begin(), all.end(), T(0.0f)); });
}

/// Arrays of one rank: a whole tensor, and a separate array for its shard.
template <class T, class Place>
struct arrays {
    zeropp::partition part;
    int rank;
    typename Place::template array<T> full;
    typename Place::template array<T> shard;

    arrays(std::size_t elements, int ranks, int r)
        : part(elements, ranks), rank(r), full(elements), shard(part.size(r)) {}

    /// This rank's shard: in the whole tensor if `in_place`, otherwise in `shard`.
    zeropp::view<T, typename Place::space> slice(bool in_place) {
        return in_place ? full.view().subview(part.offset(rank), part.size(rank)) : shard.view();
    }
    /// This rank's shard, in host memory.
    auto read_slice(bool in_place) {
        return in_place ? full.read(part.offset(rank), part.size(rank)) : shard.read(0, shard.size());
    }
};

/// Arrays of one rank: a whole tensor, and one for a result of its size.
template <class T, class Place>
struct whole_arrays {
    zeropp::partition part;
    int rank;
    typename Place::template array<T> full;
    typename Place::template array<T> result;

    whole_arrays(std::size_t elements, int ranks, int r)
        : part(elements, ranks), rank(r), full(elements), result(elements) {}

    /// Where the result goes: over the tensor if `in_place`, otherwise to `result`.
    auto& to(bool in_place) { return in_place ? full : result; }
};

/// Fills `a.full` with the tensor of its rank, `first_seed` + rank.
template <class Arrays>
void fill_full(Arrays& a, std::uint64_t first_seed) {
    a.full.write(
        [&]<class T>(std::span<T> full) { fill<T>(full, first_seed + static_cast<std::uint64_t>(a.rank), 0); });
}

}  // namespace zeropp_bench
