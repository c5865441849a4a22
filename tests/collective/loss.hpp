#pragma once
/// \file
/// Losses of ranks that tests of the recovery go through, and memory of the tensors.

#include "collective/drawn_list.hpp"
#include "collective/ranks.hpp"

#include <zeropp/elastic/survivors.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/two_level.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace collective_test {

using numbers = std::vector<std::vector<float>>;  // by tensor

inline constexpr float untouched = -77.0f;

/// What a case stores and loses.
struct loss {
    node_map map;
    std::vector<int> dead;
    std::vector<drawn_tensor> tensors;
    zeropp::recovery_options options{};

    bool has(int rank) const { return std::count(dead.begin(), dead.end(), rank) != 0; }
    std::vector<int> survivors() const {
        std::vector<int> left;
        for (int r = 0; r != map.ranks(); ++r) {
            if (!has(r)) left.push_back(r);
        }
        return left;
    }
    std::string text() const {
        std::string all = map.name + " without";
        for (const int d : dead) all += " " + std::to_string(d);
        return all + ", " + std::to_string(tensors.size()) + " tensors, the first of " +
               std::to_string(tensors.empty() ? 0 : tensors[0].n) + ", by " + std::to_string(options.chunk_bytes) +
               (options.lost_shards_only ? ", lost shards" : "");
    }
    /// Rank of group g that holds element e of a tensor: of its shards over the group or, in a replica, of its column.
    int holder(bool replica, const drawn_tensor& tensor, std::size_t e, int g) const {
        const zeropp::two_level ranks = map.topology();
        const int k = ranks.group_size(g);
        if (!replica) return ranks.rank_of(g, static_cast<int>(e / tensor.slice(at(k))));
        int columns = 0;
        for (int h = 0; h != ranks.groups(); ++h) columns = std::max(columns, ranks.group_size(h));
        const int column = ranks.index_of(static_cast<int>(e / tensor.slice(at(ranks.size()))));
        return ranks.rank_of(g, column < columns / k * k ? column % k : column - (columns - k));
    }
    bool owner_is_dead(const drawn_tensor& tensor, std::size_t e) const {
        return has(static_cast<int>(e / tensor.slice(at(map.ranks()))));
    }
};

/// Arrays of T for the tensors, as an array or a list where `List`, over the ranks of a topology or one rank's shards.
template <class T, bool List>
struct tensor_memory {
    std::deque<guarded<T>> arrays;
    std::vector<zeropp::list_tensor<T, zeropp::host_space>> entries;

    void add(const std::vector<float>& values, std::size_t row) {
        arrays.emplace_back(values.size());
        arrays.back().fill(narrowed<T>(values));
        entries.push_back({arrays.back().view(), {.row = row}});
    }
    template <class... Ranks>
    auto operand(const Ranks&... ranks) {
        if constexpr (List) {
            return zeropp::tensor_list<T>(ranks...,
                                          std::span<const zeropp::list_tensor<T, zeropp::host_space>>(entries));
        } else {
            return arrays.front().view();
        }
    }
    numbers values() {
        numbers all;
        for (auto& a : arrays) all.push_back(a.values());
        return all;
    }
    bool intact() {
        return std::all_of(arrays.begin(), arrays.end(), [](auto& a) { return a.intact(); });
    }
};

/// Whole tensors, as recover_weights takes them: a list, or the elements of the first.
template <bool List, class Whole>
const auto& shape_of(const Whole& whole, const loss& c) {
    if constexpr (List) {
        return whole;
    } else {
        return c.tensors[0].n;
    }
}

/// Shards of a survivor, of which no element is recovered yet.
template <class T, bool List>
tensor_memory<T, List> shards_to_fill(const loss& c, int survivor) {
    tensor_memory<T, List> shards;
    for (const drawn_tensor& t : c.tensors) {
        shards.add(std::vector<float>(t.size(c.survivors().size(), at(survivor)), untouched), 1);
    }
    return shards;
}

/// Sets of dead ranks: each rank, each node, two ranks, the first rank of each node, and all but the last rank.
inline std::vector<std::vector<int>> losses(const node_map& map) {
    const zeropp::two_level ranks = map.topology();
    std::vector<std::vector<int>> sets{{}};
    for (int r = 0; r != ranks.size(); ++r) sets.push_back({r});
    std::vector<int> firsts, but_last;
    for (int g = 0; g != ranks.groups(); ++g) {
        sets.push_back(zeropp::peer_ranks(ranks, 0, ranks.rank_of(g, 0)));
        firsts.push_back(ranks.rank_of(g, 0));
    }
    sets.push_back(firsts);
    sets.push_back({0, ranks.size() - 1});
    for (int r = 0; r + 1 < ranks.size(); ++r) but_last.push_back(r);
    sets.push_back(but_last);
    std::erase_if(sets, [&](const auto& s) {
        return static_cast<int>(s.size()) == ranks.size() || (s.size() == 2 && s[0] == s[1]);
    });
    return sets;
}

inline const std::vector<drawn_tensor> some_tensors{{0, 1, 0},   {1, 1, 0},  {37, 1, 0},
                                                    {515, 3, 0}, {64, 1, 0}, {1003, 1, 0}};

/// Calls f(turn, array, list) for all losses on `maps`: of an array, in sizes that take turns, and of `some_tensors`.
template <class F>
void for_each_loss(const std::vector<node_map>& maps, F f) {
    std::size_t turn = 0;
    for (const node_map& map : maps) {
        for (const std::vector<int>& dead : losses(map)) {
            const std::size_t n = std::vector<std::size_t>{1003, 0, 1, 5, 998}[turn % 5];
            const std::size_t bytes = std::vector<std::size_t>{std::size_t{16} << 20, 1, 4000}[turn++ % 3];
            const loss array{map, dead, {{n, 1, 0}}, {.lost_shards_only = turn % 4 < 2, .chunk_bytes = bytes}};
            f(turn, array, loss{map, dead, some_tensors, array.options});
        }
    }
}

}  // namespace collective_test
