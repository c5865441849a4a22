#pragma once
/// \file
/// Benchmark of quantized_all_reduce, as nccl-tests measure all_reduce. The all-gather phase has the inter-node
/// quantizer.

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

struct quantized_all_reduce_perf {
    static constexpr std::uint64_t first_seed = 1;
    static constexpr wire quantizes = wire::two_hops;
    static constexpr bool has_in_place = true;
    static constexpr bool equal_shards = false;
    static constexpr double passes = 2;

    static program_facts facts() {
        return {.name = "quantized_all_reduce_perf",
                .purpose =
                    "Times zeropp::quantized_all_reduce beside the transport's own all-reduce and beside the "
                    "bare exchange of its messages, in turns. The all-gather phase has the inter-node quantizer.",
                .quantizers = {"int8:256+int4:128"},
                .quantizes = quantizes,
                .has_chunks = true};
    }
    static std::string native_name(const rank_context& ranks) { return ranks.native_all_reduce_name(); }
    static std::vector<int> members(const rank_context& ranks) { return ranks.everyone(); }

    /// A rank's tensor, and an array for the result.
    template <class T, class Place>
    struct tensors {
        zeropp::partition part;
        int rank;
        typename Place::template array<T> full;
        typename Place::template array<T> result;

        tensors(std::size_t elements, int ranks, int r)
            : part(elements, ranks), rank(r), full(elements), result(elements) {}
    };

    template <class T, class Place>
    static void reset(tensors<T, Place>& a) {
        a.full.write([&](std::span<T> all) { fill<T>(all, first_seed + static_cast<std::uint64_t>(a.rank), 0); });
        a.result.write([](std::span<T> all) { std::fill(all.begin(), all.end(), T(0.0f)); });
    }

    template <class T, class Place>
    static void call_native(native_collectives& native, native_format format, tensors<T, Place>& a) {
        native.all_reduce(format, a.full.view().data(), a.result.view().data(), a.full.size());
    }
    template <class T, class Place>
    static tally check_native(tensors<T, Place>& a) {
        const auto full = a.result.read(0, a.result.size());
        return compare_in_pieces<T>(std::span<const T>(full), [&](std::size_t begin, std::size_t n) {
            return expected_sum<T, T>(zeropp::cast_to<T>(), a.part.ranks(), first_seed, begin, n);
        });
    }

    template <class T, class Place, zeropp::quantizer IntraNode, zeropp::quantizer InterNode>
    class calls {
    public:
        calls(const collective_run<Place>& run, std::shared_ptr<tensors<T, Place>> a, const IntraNode& intra_node,
              const InterNode& inter_node)
            : nodes_(run.ranks.nodes()), how_{.chunks = run.wanted.chunks}, a_(std::move(a)), intra_node_(intra_node),
              inter_node_(inter_node) {}

        /// Two-shot: the hops of a reduce-scatter and of an all-gather. One-shot, for small tensors: whole tensors are
        /// gathered.
        route hops() const {
            const std::size_t slice = a_->part.slice_size();
            const auto groups = static_cast<std::size_t>(nodes_.groups());
            const auto ranks = static_cast<std::size_t>(nodes_.size());
            const bool intra_node_hop = nodes_.group_size(0) > 1;
            const bool inter_node_hop = nodes_.groups() > 1;
            const std::size_t first = zeropp::has_hop(nodes_, 0) ? zeropp::wire_bytes(intra_node_, slice)
                                                                 : zeropp::wire_bytes(inter_node_, slice);
            route hops;
            const auto add_gather = [&](std::size_t bytes, std::size_t count) {
                if (inter_node_hop) hops.push_back({hop::link::inter_node, hop::pattern::all_gather, bytes, count});
                if (intra_node_hop) {
                    hops.push_back({hop::link::intra_node, hop::pattern::all_gather, groups * bytes, groups * count});
                }
            };
            if (zeropp::detail::algorithm_for(zeropp::all_reduce_algorithm::by_size, nodes_.size(), first,
                                              zeropp::wire_bytes(inter_node_, slice)) ==
                zeropp::all_reduce_algorithm::one_shot) {
                add_gather(ranks * first, ranks * slice);
                return hops;
            }
            const int cuts =
                zeropp::detail::chunks_for(how_.chunks, nodes_, zeropp::wire_bytes(inter_node_, slice), true);
            const zeropp::chunking cut(
                slice, cuts, static_cast<std::size_t>(std::max(IntraNode::block_size, InterNode::block_size)));
            std::size_t in = 0, out = 0;
            for (std::size_t c = 0; c != cut.chunks; ++c) {
                in += groups * zeropp::wire_bytes(intra_node_, cut.count(c));
                out += zeropp::wire_bytes(inter_node_, cut.count(c));
            }
            if (intra_node_hop) hops.push_back({hop::link::intra_node, hop::pattern::all_to_all, in, groups * slice});
            if (inter_node_hop) hops.push_back({hop::link::inter_node, hop::pattern::all_to_all, out, slice});
            add_gather(out, slice);
            return hops;
        }
        std::size_t workspace_bytes() const {
            return zeropp::quantized_all_reduce_workspace_bytes(
                nodes_, zeropp::hops{intra_node_, inter_node_, inter_node_}, a_->full.size(), how_);
        }
        template <class Exec, class Scratch>
        void call(const Exec& exec, comm_on<Place>& comm, bool in_place, Scratch scratch) {
            zeropp::quantized_all_reduce(exec, comm, zeropp::hops{intra_node_, inter_node_, inter_node_},
                                         a_->full.view(), in_place ? a_->full.view() : a_->result.view(), how_,
                                         scratch);
        }
        tally check(bool in_place) {
            auto& found = in_place ? a_->full : a_->result;
            const auto values = found.read(0, found.size());
            const std::span<const T> full(values);
            const route way = hops();
            const bool gathers = way.empty() || way.front().what == hop::pattern::all_gather;
            if (!gathers) return check_all_reduced<T>(intra_node_, inter_node_, inter_node_, nodes_, full, first_seed);
            tally all;
            for (int r = 0; r != a_->part.ranks(); ++r) {
                const std::size_t offset = a_->part.offset(r);
                const auto slice = full.subspan(offset, a_->part.size(r));
                all.add(compare_in_pieces<T>(slice, [&](std::size_t begin, std::size_t n) {
                    return zeropp::has_hop(nodes_, 0)
                               ? expected_sum<T>(intra_node_, nodes_.size(), first_seed, offset + begin, n)
                               : expected_sum<T>(inter_node_, nodes_.size(), first_seed, offset + begin, n);
                }));
            }
            return all;
        }

    private:
        zeropp::two_level nodes_;
        zeropp::all_reduce_options how_;
        std::shared_ptr<tensors<T, Place>> a_;
        IntraNode intra_node_;
        InterNode inter_node_;
    };
};

}  // namespace zeropp_bench
