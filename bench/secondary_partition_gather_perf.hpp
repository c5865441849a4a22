#pragma once
/// \file
/// Benchmark of secondary_partition_gather, as nccl-tests measure all_gather: within every node, on all nodes at once.

#include "support/gather_perf.hpp"
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

struct secondary_partition_gather_perf : gather_perf {
    static constexpr std::uint64_t version = 1;
    static constexpr bool has_in_place = false;

    static program_facts facts() {
        return {.name = "secondary_partition_gather_perf",
                .purpose = "Times zeropp::secondary_partition_gather, whose group is the node, beside the transport's "
                           "own all-gather inside nodes and beside the bare exchange of its messages, in turns.",
                .quantizers = {"bf16", "int8:256"},
                .quantizes = quantizes};
    }
    static std::string native_name(const rank_context& ranks) {
        const std::string name = ranks.native_all_gather_name();
        return name.empty() ? name : name + " inside nodes";
    }
    /// The ranks of this rank's node.
    static std::vector<int> members(const rank_context& ranks) {
        const zeropp::two_level& nodes = ranks.nodes();
        return zeropp::peer_ranks(nodes, 0, ranks.rank());
    }

    template <class T, class Place>
    static void reset(arrays<T, Place>& a) {
        a.shard.write([&](std::span<T> shard) { fill<T>(shard, seed, a.part.offset(a.rank)); });
        clear(a.full);
    }

    template <class T, class Place, zeropp::quantizer Q>
    class calls {
    public:
        calls(const collective_run<Place>& run, std::shared_ptr<arrays<T, Place>> a, const Q& q)
            : nodes_(run.ranks.nodes()), rank_(run.ranks.rank()), a_(std::move(a)), q_(q),
              storage_(partition_type::storage_bytes(q, a_->full.size(), a_->part.ranks())),
              secondary_(q, a_->full.size(), a_->part.ranks(), a_->rank, storage_.view()) {
            a_->full.write([](std::span<T> values) { fill<T>(values, seed, 0); });
            run.executions.run([&](const auto& exec) { secondary_.store(exec.intra_node, a_->full.view(), version); });
        }

        route hops() const {
            const std::size_t shard = a_->part.slice_size();
            route way;
            add_hop(way, nodes_, rank_, 0, hop::pattern::all_gather, {zeropp::wire_bytes(q_, shard), shard});
            return way;
        }
        std::size_t workspace_bytes() const {
            return zeropp::secondary_partition_gather_workspace_bytes(a_->part.ranks(), q_, a_->full.size());
        }
        template <class Exec, class Scratch>
        void call(const Exec& exec, comm_on<Place>& comm, bool, Scratch scratch) {
            zeropp::secondary_partition_gather(exec.intra_node, comm, secondary_, version, a_->full.view(), scratch);
        }
        tally check(bool) { return gather_perf::check<T>(q_, *a_); }

    private:
        using partition_type = zeropp::secondary_partition<Q, typename Place::space>;

        zeropp::two_level nodes_;
        int rank_;
        std::shared_ptr<arrays<T, Place>> a_;
        Q q_;
        typename Place::template array<std::byte> storage_;
        partition_type secondary_;
    };
};

}  // namespace zeropp_bench
