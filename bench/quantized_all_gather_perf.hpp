#pragma once
/// \file
/// Benchmark of quantized_all_gather, as nccl-tests measure all_gather.

#include "support/gather_perf.hpp"
#include "support/routes.hpp"

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp_bench {

struct quantized_all_gather_perf : gather_perf {
    static constexpr bool has_in_place = true;

    static program_facts facts() {
        return {.name = "quantized_all_gather_perf",
                .purpose = "Times zeropp::quantized_all_gather beside the transport's own all-gather and beside the "
                           "bare exchange of its messages, in turns.",
                .quantizers = {"int8:256"},
                .quantizes = quantizes,
                .has_chunks = true};
    }
    static std::string native_name(const rank_context& ranks) { return ranks.native_all_gather_name(); }
    static std::vector<int> members(const rank_context& ranks) { return ranks.everyone(); }

    template <class T, class Place>
    static void reset(arrays<T, Place>& a) {
        const std::size_t offset = a.part.offset(a.rank);
        a.shard.write([&](std::span<T> shard) { fill<T>(shard, seed, offset); });
        a.full.write([&](std::span<T> full) {
            std::fill(full.begin(), full.end(), T(0.0f));
            fill<T>(full.subspan(offset, a.part.size(a.rank)), seed, offset);
        });
    }

    template <class T, class Place, zeropp::quantizer Q>
    class calls {
    public:
        calls(const collective_run<Place>& run, std::shared_ptr<arrays<T, Place>> a, const Q& q)
            : nodes_(run.ranks.nodes()), how_{.chunks = run.wanted.chunks}, a_(std::move(a)), q_(q) {}

        route hops() const {
            route way;
            add_gather(way, nodes_, a_->rank,
                       messages_of(zeropp::hops{q_}, nodes_, a_->part.slice_size(), how_.chunks)[0]);
            return way;
        }
        std::size_t workspace_bytes() const {
            return zeropp::quantized_all_gather_workspace_bytes(nodes_, q_, a_->full.size(), how_);
        }
        template <class Exec, class Scratch>
        void call(const Exec& exec, comm_on<Place>& comm, bool in_place, Scratch scratch) {
            zeropp::quantized_all_gather(exec, comm, q_, a_->slice(in_place), a_->full.view(), how_, scratch);
        }
        tally check(bool) { return gather_perf::check<T>(q_, *a_); }

    private:
        zeropp::two_level nodes_;
        zeropp::gather_options how_;
        std::shared_ptr<arrays<T, Place>> a_;
        Q q_;
    };
};

}  // namespace zeropp_bench
