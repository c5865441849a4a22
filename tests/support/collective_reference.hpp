#pragma once
/// \file
/// Results of collectives on each rank, computed from all ranks' inputs one block, one rank and one node at a time, in
/// double, with every rounding explicit. Shares no code with the library; derives quantizers from their names
/// ("int4:128:signed:fp16").

#include "support/reference.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace collective_test::reference {

using zeropp_test::floating_format;

inline constexpr floating_format fp32 = zeropp_test::fp32_format;
inline constexpr floating_format fp16 = zeropp_test::fp16_format;
inline constexpr floating_format bf16 = zeropp_test::bf16_format;

/// Rounds a double to float. Sums, products and quotients of two floats come out as in float arithmetic.
inline double single(double x) { return static_cast<double>(static_cast<float>(x)); }

/// A quantizer, derived from its name.
struct quantizer {
    zeropp_test::reference_format format{zeropp_test::scheme::symmetric, 0, 1, fp32};

    quantizer(std::string_view name) {
        const std::map<std::string_view, floating_format> formats{{"fp32", fp32}, {"fp16", fp16}, {"bf16", bf16}};
        for (bool first = true; !name.empty(); first = false) {
            const std::string_view word = name.substr(0, name.find(':'));
            name.remove_prefix(std::min(name.size(), word.size() + 1));
            if (formats.contains(word)) {
                format.stored = formats.at(word);
                if (first) format.how = zeropp_test::scheme::lossless;
            } else if (word.starts_with("int")) {
                format.bits = number(word.substr(3));
            } else if (word == "signed") {
                format.how = zeropp_test::scheme::signed_absmax;
            } else if (word == "asymmetric") {
                format.how = zeropp_test::scheme::asymmetric;
            } else {
                format.block_size = static_cast<std::size_t>(number(word));
            }
        }
    }

    /// Values after one message.
    std::vector<float> through(const std::vector<float>& values) const {
        std::vector<float> result;
        for (std::size_t begin = 0; begin < values.size(); begin += format.block_size) {
            const std::size_t n = std::min(format.block_size, values.size() - begin);
            const auto params =
                format.lossless() ? zeropp_test::reference_format::parameters{} : format.fit(&values[begin], n);
            for (std::size_t i = begin; i != begin + n; ++i) {
                result.push_back(format.lossless()
                                     ? static_cast<float>(format.stored.rounded(static_cast<double>(values[i])))
                                     : format.decode(format.encode(values[i], params), params));
            }
        }
        return result;
    }

private:
    static int number(std::string_view digits) {
        int n = 0;
        if (std::from_chars(digits.data(), digits.data() + digits.size(), n).ec != std::errc()) {
            throw std::invalid_argument("not a quantizer that the reference knows: " + std::string(digits));
        }
        return n;
    }
};

/// Ranks of each node: nodes in the order of their lowest rank, ranks in order.
inline std::vector<std::vector<int>> nodes_of(const std::vector<int>& node_of_rank) {
    std::vector<std::vector<int>> nodes;
    std::map<int, std::size_t> place;
    for (std::size_t r = 0; r != node_of_rank.size(); ++r) {
        const auto [at, is_new] = place.try_emplace(node_of_rank[r], nodes.size());
        if (is_new) nodes.emplace_back();
        nodes[at->second].push_back(static_cast<int>(r));
    }
    return nodes;
}

/// Number of ranks of the largest node.
inline std::size_t largest_of(const std::vector<std::vector<int>>& nodes) {
    std::size_t most = 0;
    for (const std::vector<int>& node : nodes) most = std::max(most, node.size());
    return most;
}

/// True if a reduction has an intra-node hop, which a node of one rank takes too if another is larger.
inline bool has_intra_node_hop(const std::vector<std::vector<int>>& nodes) {
    return largest_of(nodes) > 1 || nodes.size() == 1;
}

/// First element of a rank's shard; the next rank's first element is its end.
inline std::size_t slice_begin(std::size_t elements, std::size_t ranks, std::size_t rank) {
    const std::size_t largest = (elements + ranks - 1) / ranks;
    return std::min(elements, rank * largest);
}

inline std::vector<float> slice_of(const std::vector<float>& tensor, std::size_t ranks, std::size_t rank) {
    const auto at = [&](std::size_t r) {
        return tensor.begin() + static_cast<std::ptrdiff_t>(slice_begin(tensor.size(), ranks, r));
    };
    return {at(rank), at(rank + 1)};
}

/// `tensor` after each of its shards has gone through its own message, rounded to the element format.
inline std::vector<float> gathered(const std::vector<float>& tensor, std::size_t ranks, const quantizer& q,
                                   const floating_format& element) {
    std::vector<float> full;
    for (std::size_t r = 0; r != ranks; ++r) {
        for (const float x : q.through(slice_of(tensor, ranks, r))) {
            full.push_back(static_cast<float>(element.rounded(x)));
        }
    }
    return full;
}

/// Shard of rank `rank` if rank r contributes fulls[r]. Adds to `previous`, the shard's old values, unless that is
/// empty.
inline std::vector<float> reduce_scattered(const std::vector<int>& node_of_rank,
                                           const std::vector<std::vector<float>>& fulls, std::size_t rank,
                                           const quantizer& intra_node, const quantizer& inter_node, bool mean,
                                           const std::vector<float>& previous, const floating_format& element) {
    const auto nodes = nodes_of(node_of_rank);
    const std::size_t ranks = node_of_rank.size();
    const std::size_t n = slice_of(fulls[0], ranks, rank).size();
    std::vector<float> total;
    for (const std::vector<int>& node : nodes) {
        std::vector<float> of_node;
        for (const int r : node) {
            std::vector<float> own = slice_of(fulls[static_cast<std::size_t>(r)], ranks, rank);
            if (has_intra_node_hop(nodes)) own = intra_node.through(own);
            if (of_node.empty()) {
                of_node = own;
            } else {
                for (std::size_t i = 0; i != n; ++i) {
                    of_node[i] =
                        static_cast<float>(single(static_cast<double>(of_node[i]) + static_cast<double>(own[i])));
                }
            }
        }
        if (nodes.size() > 1) of_node = inter_node.through(of_node);
        if (total.empty()) {
            total = of_node;
        } else {
            for (std::size_t i = 0; i != n; ++i) {
                total[i] = static_cast<float>(single(static_cast<double>(total[i]) + static_cast<double>(of_node[i])));
            }
        }
    }
    const double divisor = mean ? static_cast<double>(ranks) : 1.0;
    std::vector<float> shard;
    for (std::size_t i = 0; i != n; ++i) {
        const double was = previous.empty() ? 0.0 : static_cast<double>(previous[i]);
        const double value = single(static_cast<double>(total[i]) / divisor);
        shard.push_back(static_cast<float>(element.rounded(previous.empty() ? value : single(was + value))));
    }
    return shard;
}

/// Result of an all-reduce on every rank: one-shot if `gathers`, else two-shot.
inline std::vector<float> all_reduced(const std::vector<int>& node_of_rank,
                                      const std::vector<std::vector<float>>& fulls, const quantizer& intra_node,
                                      const quantizer& inter_node, const quantizer& back, bool mean, bool gathers,
                                      const floating_format& element) {
    const std::size_t ranks = node_of_rank.size();
    std::vector<float> result;
    for (std::size_t r = 0; r != ranks; ++r) {
        std::vector<float> sum;
        if (gathers) {
            const auto nodes = nodes_of(node_of_rank);
            const quantizer& first = has_intra_node_hop(nodes) ? intra_node : inter_node;
            for (std::size_t i = 0; i != largest_of(nodes); ++i) {
                for (const std::vector<int>& node : nodes) {
                    if (i >= node.size()) continue;
                    const auto sent = first.through(slice_of(fulls[static_cast<std::size_t>(node[i])], ranks, r));
                    if (sum.empty()) {
                        sum = sent;
                    } else {
                        for (std::size_t k = 0; k != sum.size(); ++k) sum[k] += sent[k];
                    }
                }
            }
            for (float& x : sum) x = mean ? x / static_cast<float>(ranks) : x;
        } else {
            const auto shard = reduce_scattered(node_of_rank, fulls, r, intra_node, inter_node, mean, {}, fp32);
            sum = back.through(shard);
        }
        for (const float x : sum) result.push_back(static_cast<float>(element.rounded(x)));
    }
    return result;
}

/// Sums of two arrays in float.
inline std::vector<float> added(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> sums;
    for (std::size_t i = 0; i != a.size(); ++i) {
        sums.push_back(static_cast<float>(single(static_cast<double>(a[i]) + static_cast<double>(b[i]))));
    }
    return sums;
}

/// `values` plus `residual`, as they arrive. `residual` is empty at first, and then the one for the next time.
inline std::vector<float> fed_back(const std::vector<float>& values, std::vector<float>& residual, const quantizer& q,
                                   const quantizer& storage) {
    residual.resize(values.size());
    const std::vector<float> whole = added(values, residual);
    const std::vector<float> arrived = q.through(whole);
    for (std::size_t i = 0; i != values.size(); ++i) {
        const double error = single(static_cast<double>(whole[i]) - static_cast<double>(arrived[i]));
        if (std::isfinite(error)) residual[i] = static_cast<float>(error);
    }
    residual = storage.through(residual);
    return arrived;
}

/// Sum over any number of levels, of `extents` peers each, from the innermost. `parts` are by rank; peers of the
/// innermost level have consecutive numbers. `sent(level, sender, values)` is the values of a rank as they arrive,
/// then of a node, then of a site. A level of one peer takes no message, unless there is one rank in all.
template <class Sent>
std::vector<float> summed(std::vector<std::vector<float>> parts, const std::vector<std::size_t>& extents, Sent sent) {
    const bool alone = parts.size() == 1;
    for (std::size_t level = 0; level != extents.size(); ++level) {
        if (extents[level] == 1 && !(alone && level == 0)) continue;
        std::vector<std::vector<float>> sums(parts.size() / extents[level]);
        for (std::size_t sender = 0; sender != parts.size(); ++sender) {
            const std::vector<float> arrived = sent(level, sender, parts[sender]);
            std::vector<float>& sum = sums[sender / extents[level]];
            sum = sender % extents[level] == 0 ? arrived : added(sum, arrived);
        }
        parts = sums;
    }
    return parts[0];
}

/// Sum of all ranks' `parts`, each through one message, in the order of an all-reduce that gathers: the coordinate of
/// the innermost level counts first, then that of each next one.
inline std::vector<float> gathered_sum(const std::vector<std::vector<float>>& parts,
                                       const std::vector<std::size_t>& extents, const quantizer& q) {
    std::vector<std::size_t> ranks{0};
    std::size_t stride = 1;
    for (const std::size_t extent : extents) {
        std::vector<std::size_t> further;
        for (const std::size_t rank : ranks) {
            for (std::size_t peer = 0; peer != extent; ++peer) further.push_back(rank + peer * stride);
        }
        ranks = further;
        stride *= extent;
    }
    std::vector<float> sum = q.through(parts[0]);
    for (std::size_t i = 1; i != ranks.size(); ++i) sum = added(sum, q.through(parts[ranks[i]]));
    return sum;
}

}  // namespace collective_test::reference
