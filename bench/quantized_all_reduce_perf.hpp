#pragma once
/// \file
/// Benchmark of quantized_all_reduce, as nccl-tests measure all_reduce. The all-gather phase has the inter-node
/// quantizer.

#include "support/checks.hpp"
#include "support/routes.hpp"
#include "support/whole_perf.hpp"

#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp_bench {

struct quantized_all_reduce_perf : whole_perf {
    static constexpr wire quantizes = wire::two_hops;
    static constexpr shard_sizes shards = shard_sizes::any;
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

    template <class T, class Place>
    static void call_native(native_collectives& native, native_format format, whole_arrays<T, Place>& a) {
        native.all_reduce(format, a.full.view().data(), a.result.view().data(), a.full.size());
    }
    template <class T, class Place>
    static tally check_native(whole_arrays<T, Place>& a) {
        const auto full = a.result.read(0, a.result.size());
        return compare_in_pieces<T>(std::span<const T>(full), [&](std::size_t begin, std::size_t n) {
            return expected_sum<T, T>(zeropp::cast_to<T>(), a.part.ranks(), first_seed, begin, n);
        });
    }

    template <class T, class Place, zeropp::quantizer IntraNode, zeropp::quantizer InterNode>
    class calls {
    public:
        calls(const collective_run<Place>& run, std::shared_ptr<whole_arrays<T, Place>> a, const IntraNode& intra_node,
              const InterNode& inter_node)
            : nodes_(run.ranks.nodes()), how_{.chunks = run.wanted.chunks}, a_(std::move(a)),
              by_level_(intra_node, inter_node, inter_node) {
            const std::size_t shard = a_->part.slice_size();
            visit_first([&](const auto& q) { first_ = {zeropp::wire_bytes(q, shard), shard}; });
            one_shot_ = zeropp::prefers_one_shot(nodes_.size(), first_.bytes, zeropp::wire_bytes(inter_node, shard));
        }

        /// Two-shot: the hops of a reduce-scatter and of an all-gather. One-shot, for small tensors: whole tensors are
        /// gathered.
        route hops() const {
            route way;
            if (one_shot_) {
                add_gather(way, nodes_, a_->rank, first_ * nodes_.size());
            } else {
                const auto messages = messages_of(by_level_, nodes_, a_->part.slice_size(), how_.chunks);
                add_reduction(way, nodes_, a_->rank, messages);
                add_gather(way, nodes_, a_->rank, messages.back());
            }
            return way;
        }
        std::size_t workspace_bytes() const {
            return zeropp::quantized_all_reduce_workspace_bytes(nodes_, by_level_, a_->full.size(), how_);
        }
        template <class Exec, class Scratch>
        void call(const Exec& exec, comm_on<Place>& comm, bool in_place, Scratch scratch) {
            zeropp::quantized_all_reduce(exec, comm, by_level_, a_->full.view(), a_->to(in_place).view(), how_,
                                         scratch);
        }
        tally check(bool in_place) {
            const auto values = a_->to(in_place).read(0, a_->full.size());
            const std::span<const T> full(values);
            if (!one_shot_) return check_all_reduced<T>(by_level_, nodes_, full, first_seed);
            return compare_by_shard<T>(full, a_->part, [&](std::size_t begin, std::size_t n) {
                return visit_first(
                    [&](const auto& q) { return expected_sum<T>(q, nodes_.size(), first_seed, begin, n); });
            });
        }

    private:
        /// Calls f with the quantizer of the first hop.
        template <class F>
        auto visit_first(F f) const {
            return zeropp::has_hop(nodes_, 0) ? f(by_level_.at(zeropp::level<0>)) : f(by_level_.at(zeropp::level<1>));
        }

        zeropp::two_level nodes_;
        zeropp::all_reduce_options how_;
        std::shared_ptr<whole_arrays<T, Place>> a_;
        zeropp::hops<IntraNode, InterNode, InterNode> by_level_;
        message_size first_;  // of a shard, on the first hop
        bool one_shot_;
    };
};

}  // namespace zeropp_bench
