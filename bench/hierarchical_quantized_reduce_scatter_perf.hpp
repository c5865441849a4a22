#pragma once
/// \file
/// Benchmark of hierarchical_quantized_reduce_scatter, as nccl-tests measure reduce_scatter.

#include "support/checks.hpp"
#include "support/collective_perf.hpp"

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp_bench {

struct hierarchical_quantized_reduce_scatter_perf {
    static constexpr std::uint64_t first_seed = 1;
    static constexpr wire quantizes = wire::two_hops;
    static constexpr bool has_in_place = true;
    static constexpr bool equal_shards = true;
    static constexpr double passes = 1;

    static program_facts facts() {
        return {.name = "hierarchical_quantized_reduce_scatter_perf",
                .purpose = "Times zeropp::hierarchical_quantized_reduce_scatter beside the transport's own "
                           "reduce-scatter and beside the bare exchange of its messages, in turns.",
                .quantizers = {"int8:256+int4:128"},
                .quantizes = quantizes,
                .has_chunks = true};
    }
    static std::string native_name(const rank_context& ranks) { return ranks.native_reduce_scatter_name(); }
    static std::vector<int> members(const rank_context& ranks) { return ranks.everyone(); }

    template <class T, class Place>
    using tensors = arrays<T, Place>;

    template <class T, class Place>
    static void reset(arrays<T, Place>& a) {
        a.full.write([&](std::span<T> full) { fill<T>(full, first_seed + static_cast<std::uint64_t>(a.rank), 0); });
        a.shard.write([](std::span<T> shard) { std::fill(shard.begin(), shard.end(), T(0.0f)); });
    }

    template <class T, class Place>
    static void call_native(native_collectives& native, native_format format, arrays<T, Place>& a) {
        native.reduce_scatter(format, a.full.view().data(), a.shard.view().data(), a.shard.size());
    }
    template <class T, class Place>
    static tally check_native(arrays<T, Place>& a) {
        const auto shard = a.read_slice(false);
        return compare_in_pieces<T>(std::span<const T>(shard), [&](std::size_t begin, std::size_t n) {
            return expected_sum<T, T>(zeropp::cast_to<T>(), a.part.ranks(), first_seed, a.part.offset(a.rank) + begin,
                                      n);
        });
    }

    template <class T, class Place, zeropp::quantizer IntraNode, zeropp::quantizer InterNode>
    class calls {
    public:
        calls(const collective_run<Place>& run, std::shared_ptr<arrays<T, Place>> a, const IntraNode& intra_node,
              const InterNode& inter_node)
            : nodes_(run.ranks.nodes()), how_{.chunks = run.wanted.chunks}, a_(std::move(a)), intra_node_(intra_node),
              inter_node_(inter_node) {}

        /// Shards for ranks of the node and their counterparts within the node, then sums between nodes. Chunks change
        /// only the padding.
        route hops() const {
            const std::size_t slice = a_->part.slice_size();
            const int cuts =
                zeropp::detail::chunks_for(how_.chunks, nodes_, zeropp::wire_bytes(inter_node_, slice), true);
            const zeropp::chunking cut(
                slice, cuts, static_cast<std::size_t>(std::max(IntraNode::block_size, InterNode::block_size)));
            const auto groups = static_cast<std::size_t>(nodes_.groups());
            hop in{hop::link::intra_node, hop::pattern::all_to_all, 0, groups * slice};
            hop out{hop::link::inter_node, hop::pattern::all_to_all, 0, slice};
            for (std::size_t c = 0; c != cut.chunks; ++c) {
                in.bytes += groups * zeropp::wire_bytes(intra_node_, cut.count(c));
                out.bytes += zeropp::wire_bytes(inter_node_, cut.count(c));
            }
            route hops;
            if (nodes_.group_size(0) > 1) hops.push_back(in);
            if (nodes_.groups() > 1) hops.push_back(out);
            return hops;
        }
        std::size_t workspace_bytes() const {
            return zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
                nodes_, zeropp::hops{intra_node_, inter_node_}, a_->full.size(), how_);
        }
        template <class Exec, class Scratch>
        void call(const Exec& exec, comm_on<Place>& comm, bool in_place, Scratch scratch) {
            zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{intra_node_, inter_node_},
                                                          a_->full.view(), a_->slice(in_place), how_, scratch);
        }
        tally check(bool in_place) {
            const auto shard = a_->read_slice(in_place);
            return check_reduced<T>(intra_node_, inter_node_, nodes_, shard, a_->part.offset(a_->rank), first_seed);
        }

    private:
        zeropp::two_level nodes_;
        zeropp::reduce_options how_;
        std::shared_ptr<arrays<T, Place>> a_;
        IntraNode intra_node_;
        InterNode inter_node_;
    };
};

}  // namespace zeropp_bench
