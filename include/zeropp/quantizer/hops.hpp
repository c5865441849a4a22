#pragma once
/// \file
/// The quantizers of a reduction, one for each hop.

#include <zeropp/core/config.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <string>
#include <type_traits>

namespace zeropp {

/// Quantizers of a reduction: of its intra-node and its inter-node hop and, for an all-reduce, of the all-gather phase.
///   hops{int8, int4}         for a reduce-scatter
///   hops{int8, int4, int8}   for an all-reduce
template <quantizer IntraNode, quantizer InterNode, class AllGather = none>
struct hops {
    using intra_node_type = IntraNode;
    using inter_node_type = InterNode;
    using all_gather_type = AllGather;
    /// True for the three quantizers of an all-reduce.
    static constexpr bool has_all_gather = !std::is_same_v<AllGather, none>;

    /// Elements of the largest block. Block sizes are powers of two, so it is a multiple of the others.
    static constexpr int largest_block = [] {
        int size = std::max(IntraNode::block_size, InterNode::block_size);
        if constexpr (has_all_gather) size = std::max(size, AllGather::block_size);
        return size;
    }();

    /// Quantizer of the hop within the node.
    IntraNode intra_node;
    /// Quantizer of the hop between nodes.
    InterNode inter_node;
    /// Quantizer of the all-gather phase, if there is one.
    AllGather all_gather{};

    /// "INTRA_NODE + INTER_NODE", and " + ALL_GATHER" if there is one.
    std::string name() const {
        std::string text = short_text(intra_node.name()).str() + " + " + short_text(inter_node.name()).str();
        if constexpr (has_all_gather) text += " + " + short_text(all_gather.name()).str();
        return text;
    }
};
template <class IntraNode, class InterNode>
hops(IntraNode, InterNode) -> hops<IntraNode, InterNode>;
template <class IntraNode, class InterNode, class AllGather>
hops(IntraNode, InterNode, AllGather) -> hops<IntraNode, InterNode, AllGather>;

}  // namespace zeropp
