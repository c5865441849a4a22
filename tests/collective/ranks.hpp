#pragma once
/// \file
/// What the tests of the collectives share: element types, inputs, arrays with guards, topologies, ranks on threads.

#include "support/collective_reference.hpp"
#include "support/difference.hpp"
#include "support/guarded.hpp"
#include "support/samples.hpp"
#include "support/watchdog.hpp"

#include <zeropp/core/element.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/threads.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace collective_test {

/// An element type of a user's own: the upper 24 bits of a float, three bytes without alignment.
struct float24 {
    unsigned char bytes[3];
};

/// A rank's index where C++ wants it.
inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace collective_test

template <>
struct zeropp::element_traits<collective_test::float24> {
    static constexpr std::string_view name = "float24";
    static float to_float(collective_test::float24 x) noexcept {
        return zeropp::bits_float(static_cast<std::uint32_t>(x.bytes[0] << 8 | x.bytes[1] << 16) |
                                  static_cast<std::uint32_t>(x.bytes[2]) << 24);
    }
    static collective_test::float24 from_float(float x) noexcept {
        std::uint32_t b = zeropp::float_bits(x);
        b = x != x ? 0x7fc00000u : b + 0x7fu + ((b >> 8) & 1u);
        return {{static_cast<unsigned char>(b >> 8), static_cast<unsigned char>(b >> 16),
                 static_cast<unsigned char>(b >> 24)}};
    }
};

namespace collective_test {

/// The reference's description of an element type.
template <class T>
inline constexpr reference::floating_format format_of = reference::fp32;
template <>
inline constexpr reference::floating_format format_of<zeropp::half> = reference::fp16;
template <>
inline constexpr reference::floating_format format_of<zeropp::bfloat16> = reference::bf16;
template <>
inline constexpr reference::floating_format format_of<float24>{8, 15};

/// The reference's version of a quantizer of the library.
template <zeropp::quantizer Q>
reference::quantizer described(const Q& q) {
    reference::quantizer d(zeropp::short_text(q.name()).str());
    if (d.format.lossless()) d.format.block_size = Q::block_size;
    return d;
}

template <class T>
std::vector<float> widened(const T* data, std::size_t n) {
    std::vector<float> values;
    for (std::size_t i = 0; i != n; ++i) values.push_back(zeropp::element_traits<T>::to_float(data[i]));
    return values;
}

template <class T>
std::vector<T> narrowed(const std::vector<float>& values) {
    std::vector<T> elements;
    for (const float x : values) elements.push_back(zeropp::element_traits<T>::from_float(x));
    return elements;
}

/// A tensor of `n` numbers that `format` can hold, another one for each seed: magnitudes that differ between blocks,
/// lone outliers, zeros of both signs, a stretch of zeros and numbers near the smallest.
inline std::vector<float> tensor_of(std::size_t n, const reference::floating_format& format, std::uint64_t seed) {
    std::vector<float> values;
    zeropp_test::random_source random(seed);
    for (std::size_t i = 0; i != n; ++i) {
        const double uniform = 2 * random.uniform() - 1;
        const std::size_t kind = random.below(97 * 31);
        double x = uniform * std::ldexp(1.0, static_cast<int>((i / 61 + seed) % 9) - 4);
        if (kind % 97 == 0) x *= 30;
        if (kind % 31 == 1) x = std::copysign(0.0, uniform);
        if (i / 300 % 7 == 5) x = 0;
        if (i / 300 % 11 == 9) x = std::ldexp(uniform, format.smallest_exponent() - 3);
        values.push_back(static_cast<float>(format.rounded(x)));
    }
    return values;
}

/// Every rank's tensor.
template <class T>
std::vector<std::vector<float>> gradients(int ranks, std::size_t n, std::uint64_t seed) {
    std::vector<std::vector<float>> fulls;
    for (int r = 0; r != ranks; ++r) fulls.push_back(tensor_of(n, format_of<T>, seed * 64 + at(r)));
    return fulls;
}

/// An array between guards. `shift` moves it off its alignment, in bytes.
template <class T>
class guarded : public zeropp_test::guarded<T> {
public:
    explicit guarded(std::size_t n, std::size_t shift = 0) : zeropp_test::guarded<T>(n, 0xa5, shift) {}

    zeropp::host_view<T> view() { return {this->data(), this->size()}; }
    std::vector<float> values() { return widened(this->data(), this->size()); }

    void fill(const std::vector<T>& elements) {
        if (!elements.empty()) std::memcpy(this->data(), elements.data(), elements.size() * sizeof(T));
    }
};

/// The first difference of two arrays, all NaN being one; empty if there is none.
inline std::string difference(const std::vector<float>& given, const std::vector<float>& expected) {
    return zeropp_test::difference(given, expected);
}

/// A map of ranks to nodes.
struct node_map {
    std::string name;
    std::vector<int> node_of_rank;

    int ranks() const { return static_cast<int>(node_of_rank.size()); }
    zeropp::two_level topology() const { return zeropp::two_level(std::span<const int>(node_of_rank)); }
};

/// Which ranks own slices, in the order of the slices: those of the first groups, or all where that is 0.
struct owning {
    int groups;
    std::vector<int> ranks;

    owning(const node_map& map, int first_groups) : groups(first_groups) {
        const zeropp::two_level topology = map.topology();
        if (groups == 0) groups = topology.groups();
        for (int r = 0; r != topology.size(); ++r) {
            if (topology.group_of(r) < groups) ranks.push_back(r);
        }
    }

    /// What `slice(place)` makes of a rank's place among them; nothing for one that is none.
    template <class Slice>
    auto slice_of(int rank, Slice slice) const {
        const auto found = std::find(ranks.begin(), ranks.end(), rank);
        if (found != ranks.end()) return slice(static_cast<std::size_t>(found - ranks.begin()));
        return decltype(slice(std::size_t()))();
    }
    bool has(int rank) const { return std::count(ranks.begin(), ranks.end(), rank) != 0; }
};

/// True if the first groups can own slices: a group of theirs is as large as any.
inline bool can_own(const zeropp::two_level& topology, int first_groups) {
    int largest = 0;
    int largest_owner = 0;
    for (int g = 0; g != topology.groups(); ++g) {
        largest = std::max(largest, topology.group_size(g));
        if (g < first_groups) largest_owner = std::max(largest_owner, topology.group_size(g));
    }
    return largest == largest_owner;
}

/// Number of the largest group's ranks whose counterpart in its own group a rank is. They are dealt out in turn; if not
/// all get as many, the last ranks get the last ones.
inline int columns_of(const zeropp::two_level& topology, int rank) {
    int largest = 0;
    for (int g = 0; g != topology.groups(); ++g) largest = std::max(largest, topology.group_size(g));
    const int k = topology.group_size(topology.group_of(rank));
    return largest / k + (topology.index_of(rank) >= k - largest % k ? 1 : 0);
}

/// f(what calls are told of the ranks): the topology itself, or its owners where those are the first groups alone.
template <class F>
void over_owners(const zeropp::two_level& topology, int first_groups, F f) {
    first_groups == 0 ? f(topology) : f(zeropp::shard_owners(topology, first_groups));
}

inline const std::vector<node_map>& node_maps() {
    static const std::vector<node_map> maps{{"1 x 1", {0}},
                                            {"1 x 4", {0, 0, 0, 0}},
                                            {"2 x 2", {0, 0, 1, 1}},
                                            {"4 x 1", {0, 1, 2, 3}},
                                            {"3 x 2", {0, 0, 1, 1, 2, 2}},
                                            {"2 x 3", {0, 0, 0, 1, 1, 1}},
                                            {"2 x 2, round robin", {0, 1, 0, 1}},
                                            {"3 x 2, irregular", {5, 2, 9, 2, 5, 9}},
                                            {"3 + 3 + 2", {0, 0, 0, 1, 1, 1, 2, 2}},
                                            {"1 + 3", {0, 1, 1, 1}},
                                            {"3 + 5 + 2, irregular", {5, 2, 2, 9, 5, 2, 9, 2, 5, 2}}};
    return maps;
}

/// Some of the sizes that meet every edge of blocks and slices, `block` being a quantizer's: another choice for another
/// map or salt, so that a few calls meet all pairs.
inline std::vector<std::size_t> some_counts(std::size_t block, std::size_t map, std::size_t salt) {
    const std::vector<std::size_t> all{0, 1, block - 1, block, block + 1, 4 * block + 3, 5, 997, 3001, 10007};
    std::vector<std::size_t> some;
    for (const std::size_t k : {0u, 3u, 7u}) some.push_back(all[(map + 3 * salt + k) % all.size()]);
    return some;
}

/// Runs work(transport) on threads; ends the program when they hang.
template <class Work>
void on_ranks(int ranks, const std::string& what, Work work) {
    const zeropp_test::watchdog guard(std::chrono::seconds(60), what);
    zeropp::run_on_threads(ranks, work);
}

/// Runs work(transport) on threads and returns what each rank threw, "" for nothing. Ranks that never return from a
/// collective end the program.
template <class Work>
std::vector<std::string> errors_on_ranks(int ranks, const std::string& what, Work work) {
    std::vector<std::string> errors(at(ranks));
    on_ranks(ranks, what, [&](zeropp::thread_transport& transport) {
        try {
            work(transport);
        } catch (const zeropp::precondition_error& e) {
            errors[at(transport.rank())] = e.what();
        }
    });
    return errors;
}

}  // namespace collective_test
