#pragma once
/// \file
/// Benchmark of quantized_all_to_all, as nccl-tests measure alltoall.

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

struct quantized_all_to_all_perf : whole_perf {
    static constexpr wire quantizes = wire::one_hop;
    static constexpr shard_sizes shards = shard_sizes::equal;
    static constexpr double passes = 1;

    static program_facts facts() {
        return {.name = "quantized_all_to_all_perf",
                .purpose = "Times zeropp::quantized_all_to_all beside the transport's own all-to-all and beside the "
                           "bare exchange of its messages, in turns.",
                .quantizers = {"int8:256"},
                .quantizes = quantizes};
    }
    static std::string native_name(const rank_context& ranks) { return ranks.native_all_to_all_name(); }
    static std::vector<int> members(const rank_context& ranks) { return ranks.everyone(); }

    template <class T, class Place>
    static void call_native(native_collectives& native, native_format format, whole_arrays<T, Place>& a) {
        native.all_to_all(format, a.full.view().data(), a.result.view().data(), a.part.slice_size());
    }
    template <class T, class Place>
    static tally check_native(whole_arrays<T, Place>& a) {
        return check<T>(zeropp::cast_to<T>(), a, false);
    }

    template <class T, class Place, zeropp::quantizer Q>
    static tally check(const Q& q, whole_arrays<T, Place>& a, bool in_place) {
        const auto values = a.to(in_place).read(0, a.full.size());
        return check_exchanged<T>(q, std::span<const T>(values), a.part, a.rank, first_seed);
    }

    template <class T, class Place, zeropp::quantizer Q>
    class calls {
    public:
        calls(const collective_run<Place>& run, std::shared_ptr<whole_arrays<T, Place>> a, const Q& q)
            : nodes_(run.ranks.nodes()), a_(std::move(a)), q_(q) {}

        route hops() const {
            const std::size_t part = a_->part.slice_size();
            route way;
            add_all_to_all(way, nodes_, a_->rank, {zeropp::wire_bytes(q_, part), part});
            return way;
        }
        std::size_t workspace_bytes() const {
            return zeropp::quantized_all_to_all_workspace_bytes(nodes_, q_, a_->full.size());
        }
        template <class Exec, class Scratch>
        void call(const Exec& exec, comm_on<Place>& comm, bool in_place, Scratch scratch) {
            zeropp::quantized_all_to_all(exec.intra_node, comm, q_, a_->full.view(), a_->to(in_place).view(), scratch);
        }
        tally check(bool in_place) { return quantized_all_to_all_perf::check<T>(q_, *a_, in_place); }

    private:
        zeropp::two_level nodes_;
        std::shared_ptr<whole_arrays<T, Place>> a_;
        Q q_;
    };
};

}  // namespace zeropp_bench
