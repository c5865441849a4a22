#pragma once
/// \file
/// Lists of tensors drawn from a seed: their shapes, their memory with guards, and their values.

#include "collective/drawn_case.hpp"
#include "collective/ranks.hpp"

#include <zeropp/layout/tensor_list.hpp>

#include <cstddef>
#include <cstring>
#include <deque>
#include <iterator>
#include <vector>

namespace collective_test {

/// One tensor of a drawn list, as the test knows it: n elements in slices of whole rows.
struct drawn_tensor {
    std::size_t n;
    std::size_t row;
    std::size_t gap;  // elements between slices in memory

    std::size_t slice(std::size_t ranks) const {
        const std::size_t rows = (n + row - 1) / row;
        return (rows + ranks - 1) / ranks * row;
    }
    std::size_t begin(std::size_t ranks, std::size_t r) const { return std::min(n, r * slice(ranks)); }
    std::size_t size(std::size_t ranks, std::size_t r) const { return begin(ranks, r + 1) - begin(ranks, r); }
    std::size_t memory(std::size_t ranks) const { return gap == 0 ? n : ranks * (slice(ranks) + gap); }
    /// Where element i is.
    std::size_t place(std::size_t ranks, std::size_t i) const {
        const std::size_t s = slice(ranks);
        return i / s * (s + gap) + i % s;
    }
    zeropp::division division(std::size_t ranks) const {
        return {.row = row, .stride = gap == 0 ? 0 : slice(ranks) + gap, .elements = gap == 0 ? 0 : n};
    }
    std::vector<float> slice_of(const std::vector<float>& tensor, std::size_t ranks, std::size_t r) const {
        const auto first = tensor.begin() + static_cast<std::ptrdiff_t>(begin(ranks, r));
        return {first, first + static_cast<std::ptrdiff_t>(size(ranks, r))};
    }
};

/// Tensors from none to many: empty, of fewer elements than ranks, in rows, with gaps, of several blocks.
inline std::vector<drawn_tensor> drawn_tensors(random_source& random, bool gaps) {
    std::vector<drawn_tensor> tensors(random.below(9));
    for (drawn_tensor& t : tensors) {
        const std::size_t sizes[] = {0, 1, 3, 1 + random.below(70), 64 * (1 + random.below(8)), random.below(3000)};
        t.n = sizes[random.below(std::size(sizes))];
        t.row = random.below(2) == 0 ? 1 : 1 + random.below(40);
        t.gap = gaps && t.n != 0 && random.below(3) == 0 ? 1 + random.below(100) : 0;
    }
    return tensors;
}

/// One rank's arrays of a list. Whole tensors have what is between slices in guards of their own.
template <class T>
struct arrays {
    std::deque<guarded<T>> all;
    std::vector<zeropp::list_tensor<T, zeropp::host_space>> tensors;

    void add(std::size_t n, const zeropp::division& how = {}, std::size_t shift = 0) {
        all.emplace_back(n, shift);
        tensors.emplace_back(all.back().view(), how);
    }
    bool intact() {
        for (guarded<T>& array : all) {
            if (!array.intact()) return false;
        }
        return true;
    }
};

template <class T>
void put(guarded<T>& array, const drawn_tensor& t, std::size_t ranks, const std::vector<float>& values) {
    const std::vector<T> elements = narrowed<T>(values);
    for (std::size_t i = 0; i != t.n; ++i) array.data()[t.place(ranks, i)] = elements[i];
}
template <class T>
std::vector<float> take(guarded<T>& array, const drawn_tensor& t, std::size_t ranks) {
    std::vector<T> elements(t.n);
    for (std::size_t i = 0; i != t.n; ++i) elements[i] = array.data()[t.place(ranks, i)];
    return widened(elements.data(), t.n);
}
/// Whether what lies between slices is as it was.
template <class T>
bool gaps_intact(guarded<T>& array, const drawn_tensor& t, std::size_t ranks) {
    std::vector<char> used(t.memory(ranks));
    for (std::size_t i = 0; i != t.n; ++i) used[t.place(ranks, i)] = 1;
    guarded<T> fresh(t.memory(ranks));
    for (std::size_t i = 0; i != used.size(); ++i) {
        if (used[i] == 0 && std::memcmp(array.data() + i, fresh.data() + i, sizeof(T)) != 0) return false;
    }
    return true;
}

inline std::vector<float> values_of(const drawn_tensor& t, std::size_t number, std::size_t rank,
                                    const reference::floating_format& format) {
    return tensor_of(t.n, format, number * 64 + rank);
}

}  // namespace collective_test
