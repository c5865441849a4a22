#pragma once
/// \file
/// Drawn cases of collectives. A case's number is its seed: the same on every machine.

#include "collective/ranks.hpp"
#include "support/samples.hpp"

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace collective_test {

using zeropp_test::random_source;

/// Whatever a case leaves open.
struct drawn_case {
    explicit drawn_case(int seed) : random(static_cast<std::uint64_t>(seed)), number(seed) {
        const auto nodes = 1 + random.below(4);
        const auto ranks_per_node = 1 + random.below(3);
        std::vector<int> places;
        const bool equal = random.below(2) == 0;
        for (std::size_t i = 0; i != nodes * ranks_per_node; ++i) {
            places.push_back(static_cast<int>(equal || i < nodes ? i % nodes : random.below(nodes)));
        }
        // Nodes have any numbers, and ranks are on any of them.
        const int stride = 1 + static_cast<int>(random.below(1000));
        for (std::size_t i = places.size(); i != 0; --i) std::swap(places[i - 1], places[random.below(i)]);
        for (int& node : places) node = (node - 1) * stride;
        map = {"a drawn map", places};
        // Nothing, single elements, around the ends of blocks and slices, and several pieces of the codec.
        const std::size_t multiple = 64 * places.size() * (1 + random.below(3));
        const std::size_t sizes[] = {0,
                                     1 + random.below(8),
                                     random.below(200),
                                     multiple,
                                     multiple + 1 + random.below(3),
                                     multiple - 1 - random.below(3),
                                     4000 + random.below(6000)};
        n = sizes[random.below(std::size(sizes))];
        chunks = 1 + static_cast<int>(random.below(9));
    }

    std::string text() const {
        std::ostringstream text;
        text << "case " << number << ": " << n << " elements in " << chunks << " chunks, ranks on nodes";
        for (const int node : map.node_of_rank) text << " " << node;
        return text.str();
    }

    /// Where an array of T begins, in bytes from a multiple of 16: anywhere that T may.
    template <class T>
    std::size_t shift() {
        return random.below(16 / alignof(T)) * alignof(T);
    }

    random_source random;
    int number;
    node_map map;
    std::size_t n;
    int chunks;
};

}  // namespace collective_test
