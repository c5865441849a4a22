#pragma once
/// \file
/// Benchmark of hierarchical_quantized_reduce_scatter, as nccl-tests measure reduce_scatter.

#include "support/checks.hpp"
#include "support/collective_perf.hpp"
#include "support/routes.hpp"

#include <zeropp/zeropp.hpp>

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
    static constexpr shard_sizes shards = shard_sizes::equal_in_native;
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
        fill_full(a, first_seed);
        clear(a.shard);
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

    template <class T, class Place, zeropp::quantizer... Q>
    class calls {
    public:
        calls(const collective_run<Place>& run, std::shared_ptr<arrays<T, Place>> a, const Q&... by_level)
            : nodes_(run.ranks.nodes()), how_{.chunks = run.wanted.chunks}, a_(std::move(a)), by_level_(by_level...) {}

        route hops() const {
            route way;
            add_reduction(way, nodes_, a_->rank, messages_of(by_level_, nodes_, a_->part.slice_size(), how_.chunks));
            return way;
        }
        std::size_t workspace_bytes() const {
            return zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(nodes_, by_level_, a_->full.size(),
                                                                                 how_);
        }
        template <class Exec, class Scratch>
        void call(const Exec& exec, comm_on<Place>& comm, bool in_place, Scratch scratch) {
            zeropp::hierarchical_quantized_reduce_scatter(exec, comm, by_level_, a_->full.view(), a_->slice(in_place),
                                                          how_, scratch);
        }
        tally check(bool in_place) {
            const auto shard = a_->read_slice(in_place);
            return check_reduced<T>(by_level_, nodes_, std::span<const T>(shard), a_->part.offset(a_->rank),
                                    first_seed);
        }

    private:
        zeropp::two_level nodes_;
        zeropp::reduce_options how_;
        std::shared_ptr<arrays<T, Place>> a_;
        zeropp::hops<Q...> by_level_;
    };
};

}  // namespace zeropp_bench
