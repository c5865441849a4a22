/// \file
/// Chunks of tensors and of lists: every element of every shard is in exactly one chunk, and chunks end with whole
/// blocks. Counted element by element.

#include <zeropp/layout/operands.hpp>

#include "support/catch.hpp"

#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/two_level.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace {

using zeropp::two_level;

struct tensor {
    std::size_t elements;
    std::size_t row = 1;
};

/// Elements of the shard of `rank`, counted row by row.
std::size_t shard_size(const tensor& t, int ranks, int rank) {
    const std::size_t rows = (t.elements + t.row - 1) / t.row;
    const auto p = static_cast<std::size_t>(ranks);
    const std::size_t of_each = (rows + p - 1) / p;
    std::size_t count = 0;
    for (std::size_t e = 0; e != t.elements; ++e) count += e / t.row / of_each == static_cast<std::size_t>(rank);
    return count;
}

/// "" if the chunks of `division` hold each element of each rank's shards once, in order, cut at multiples of `block`.
template <class Division>
std::string chunks_fault(const Division& division, const two_level& ranks, const std::vector<tensor>& tensors,
                         int wanted, std::size_t block) {
    const typename Division::chunks cut(division, wanted, block);
    std::vector<std::vector<std::size_t>> done(tensors.size(),
                                               std::vector<std::size_t>(static_cast<std::size_t>(ranks.size())));
    for (std::size_t c = 0; c != cut.size(); ++c) {
        const auto chunk = cut[c].in_slots(ranks.order(), 0, ranks.size());
        if (chunk.sections() == 0) return "chunk " + std::to_string(c) + ": is empty";
        std::size_t before = 0;
        for (std::size_t i = 0; i != chunk.sections(); ++i) {
            const auto section = chunk.at(i);
            const std::size_t t = chunk.tensor(i);
            const std::string where = "chunk " + std::to_string(c) + ", tensor " + std::to_string(t) + ": ";
            if (section.begin % block != 0) return where + "begins within a block";
            if (section.count == 0 && tensors[t].elements != 0) return where + "is empty";
            if (section.place.elements != before || section.place.tensors != i) return where + "lies elsewhere";
            before += (section.count + 31) / 32 * 32;
            for (int s = 0; s != ranks.size(); ++s) {
                std::size_t& so_far = done[t][static_cast<std::size_t>(chunk.rank(s))];
                const std::size_t size = section.size(chunk.rank(s));
                if (size != 0 && section.begin != so_far) return where + "leaves elements out, or repeats some";
                so_far += size;
            }
        }
        if (before != (chunk.last().elements + chunk.last_count() + 31) / 32 * 32) {
            return "chunk " + std::to_string(c) + ": its message has another size";
        }
    }
    if (cut.size() > static_cast<std::size_t>(std::max(wanted, 1))) return "more chunks than wanted";
    for (std::size_t t = 0; t != tensors.size(); ++t) {
        for (int r = 0; r != ranks.size(); ++r) {
            if (done[t][static_cast<std::size_t>(r)] != shard_size(tensors[t], ranks.size(), r)) {
                return "tensor " + std::to_string(t) + " is not whole on rank " + std::to_string(r);
            }
        }
    }
    return "";
}

std::vector<two_level> topologies() {
    const std::vector<int> irregular{0, 1, 1, 2, 0, 2};
    return {two_level(1, 1), two_level(1, 3), two_level(2, 2), two_level(4, 1),
            two_level(std::span<const int>(irregular))};
}

}  // namespace

TEST_CASE("chunks of a tensor hold every element once", "[layout][chunks]") {
    for (const two_level& ranks : topologies()) {
        for (const std::size_t elements : {0u, 1u, 7u, 8u, 63u, 64u, 65u, 256u, 1000u, 4097u}) {
            const zeropp::detail::tensor_division division(elements, ranks.size());
            for (const int wanted : {-1, 0, 1, 2, 3, 16, 5000}) {
                for (const std::size_t block : {8u, 64u, 1024u}) {
                    INFO(elements << " elements over " << ranks.size() << " ranks in " << wanted
                                  << " chunks of blocks of " << block);
                    REQUIRE(chunks_fault(division, ranks, {{elements}}, wanted, block) == "");
                }
            }
        }
    }
}

TEST_CASE("chunks of a list hold every element of every tensor once", "[layout][chunks]") {
    const std::vector<std::vector<tensor>> lists{{{1000}},
                                                 {{0}},
                                                 {{0}, {0}},
                                                 {{1}, {1}, {1}},
                                                 {{5}, {0}, {4097}, {31}, {32}, {33}},
                                                 {{0}, {256, 16}, {0}, {96, 32}, {7, 7}},
                                                 {{64}, {64}, {64}, {64}, {64}, {64}, {64}},
                                                 {{10000, 100}, {3}, {10000}}};
    std::vector<float> memory(10000);
    for (const two_level& ranks : topologies()) {
        for (const std::vector<tensor>& tensors : lists) {
            std::vector<zeropp::list_tensor<float, zeropp::host_space>> given;
            for (const tensor& t : tensors) {
                given.emplace_back(zeropp::view<float, zeropp::host_space>(memory.data(), t.elements),
                                   zeropp::division{.row = t.row});
            }
            const zeropp::tensor_list<float> list(ranks, given);
            const auto division = zeropp::detail::operand_of<zeropp::host_space>(list).divided({ranks.size()});
            for (const int wanted : {-1, 1, 2, 3, 16, 5000}) {
                for (const std::size_t block : {8u, 64u, 1024u}) {
                    INFO("a list of " << tensors.size() << " tensors, the first of " << tensors.front().elements
                                      << ", over " << ranks.size() << " ranks in " << wanted << " chunks of blocks of "
                                      << block);
                    REQUIRE(chunks_fault(division, ranks, tensors, wanted, block) == "");
                }
            }
        }
    }
}
