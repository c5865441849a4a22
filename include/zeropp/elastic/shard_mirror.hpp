#pragma once
/// \file
/// Copies of shards on partner nodes, for example of an optimizer's moments: survivors of a failure recover from them.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/kept_messages.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/elastic/partners.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zeropp {

/// Copies that a rank keeps of shards of other nodes' ranks, in messages of `Quantizer`. Each rank's shards have a copy
/// on the partner node (partner_ranks). With an odd number of nodes, the shards of the last three have two copies.
/// Refers to the caller's storage of `storage_bytes(...)`, which must outlive the mirror.
///
/// `mirror_shards` brings the copies up to date, and stamps them with a version, such as the number of the step.
/// `recover_weights` takes the shards of dead ranks from the copies.
template <quantizer Quantizer, class Space>
class shard_mirror : public kept_messages<Quantizer, Space> {
    using base = kept_messages<Quantizer, Space>;

public:
    /// An empty mirror on `rank` of `ranks`, for the shards of `tensors`: an element count, or a tensor_list of whole
    /// tensors over `ranks`. Allocates 8 bytes for each kept copy. For a list, also allocates a table of 48 bytes for
    /// each tensor, and blocks in device_space. Throws precondition_error unless `rank` exists, there are several
    /// nodes, a list is over `ranks`, and `storage` is large enough and aligned to 16 bytes.
    template <topology Topology, mutable_array_in<Space> Storage>
    shard_mirror(const Quantizer& q, const Topology& ranks, int rank, const tensors_shape& tensors, Storage&& storage)
        : base("shard_mirror", q, tensors, {ranks.size()}, detail::mirrored_by(ranks, rank).size(), storage),
          rank_(rank), topology_(topology_digest(ranks)), kept_(detail::mirrored_by(ranks, rank)) {
        const std::vector<int> partners = partner_ranks(ranks, rank);
        partners_ = {topology_digest(ranks.shrink(partners)), partners.front(),
                     static_cast<int>(std::ranges::lower_bound(partners, rank) - partners.begin())};
        base::keep_table(tensors);
    }

    /// Bytes of storage that a mirror on `rank` needs: one message for each rank of which it keeps shards. Ranks of
    /// smaller nodes may keep more.
    template <topology Topology>
    static std::size_t storage_bytes(const Quantizer&, const Topology& ranks, const tensors_shape& tensors, int rank) {
        return detail::mirrored_by(ranks, rank).size() * base::bytes_of(tensors, {ranks.size()});
    }

    /// Number of ranks over which tensors are divided.
    int size() const { return base::over().count; }
    /// Number of the rank that keeps this mirror.
    int rank() const { return rank_; }

    // Members for collectives.

    /// Slot and owner of each kept message's shards, in the order of storage.
    const std::vector<detail::mirrored_shard>& kept() const { return kept_; }
    /// Owners of the kept messages' shards, in the order of storage.
    std::vector<int> kept_owners() const {
        std::vector<int> owners;
        owners.reserve(kept_.size());
        for (const detail::mirrored_shard& kept : kept_) owners.push_back(kept.owner);
        return owners;
    }
    /// Why the mirror was not made for `rank` of `ranks`, as "expected ..., given ..."; empty if it was.
    template <topology Topology>
    std::string place_problem(const Topology& ranks, int rank) const {
        if (rank_ == rank && topology_ == topology_digest(ranks)) return {};
        return "expected a mirror on rank " + std::to_string(rank) + " of " + group_sizes_text(ranks) +
               ", given one on rank " + std::to_string(rank_) + " of " + std::to_string(size()) + " in " +
               (size() == ranks.size() ? "other places" : "other groups");
    }
    /// Why `shard` is not this rank's shard, as "expected ..., given ..."; empty if it is.
    template <class Operand>
    std::string shard_problem(const Operand& shard) const {
        return base::shard_problem(shard, rank_, "mirror");
    }
    /// Why `partners` is not the topology of this rank and its partners, in which this rank is `rank`. As "expected
    /// ..., given ..."; empty if it is.
    template <topology Topology>
    std::string partners_problem(const Topology& partners, int rank) const {
        if (partners_.topology == topology_digest(partners) && partners_.own == rank) return {};
        return "expected rank " + std::to_string(partners_.own) +
               " of a communicator over topology.shrink(partner_ranks(topology, rank)), given rank " +
               std::to_string(rank) + " of " + group_sizes_text(partners);
    }
    /// Text that must be equal on all partners, besides tensors and version.
    agreed_text text() const {
        return agreed_text("partners from rank ").append(partners_.first).append(" of topology ").append(topology_);
    }

private:
    /// Identity of the communicator of this rank and its partners.
    struct partners_identity {
        std::uint64_t topology;  // digest of the communicator's topology
        int first;               // lowest of its ranks, as numbered before the split
        int own;                 // this rank's index among its ranks
    };

    int rank_;
    std::uint64_t topology_;
    partners_identity partners_;
    std::vector<detail::mirrored_shard> kept_;
};

/// Bytes of workspace that mirror_shards needs on a communicator of topology `partners`: one message for each slot that
/// a rank may serve. `tensors` is an element count, or a tensor_list of whole tensors over `ranks`.
template <topology Topology, topology Partners, quantizer Quantizer>
std::size_t mirror_shards_workspace_bytes(const Topology& ranks, const Partners& partners, const Quantizer&,
                                          const tensors_shape& tensors) {
    return most_served(partners) *
           tensors.divided({ranks.size()}, [](const auto& whole) { return format_of<Quantizer>.bytes_of(whole); });
}

/// Sends this rank's shards to its partners, and keeps the partners' shards in `mirror`, as `version`. `partners` is a
/// communicator of this rank and its partners, over exactly this topology:
///
///     const auto ranks = partner_ranks(comm.topology(), comm.rank());
///     communicator partners(comm.topology().shrink(ranks), comm.world().split(ranks));
///
/// Shapes    shard [partition(n, mirror.size()).size(mirror.rank())], or a tensor_list of this rank's shards; scratch
///           as mirror_shards_workspace_bytes(...), aligned to 16 bytes
/// Result    mirror.version() == version. If the call throws, the mirror keeps its old shards and version; on a stream,
///           it may have no version. If work fails later on a queue or stream, `invalidate` the mirror
/// Moves     one message to the rank of equal index on each partner node. Ranks of smaller nodes also exchange messages
///           of indices that only larger nodes have
/// Order     enqueued on `exec`. host{} has finished on return. Shards, mirror, communicator and execution must outlive
///           the work. Without scratch, allocates a workspace and blocks until complete
/// Requires  the same tensors, element type, quantizer and version on all partners
/// Throws    precondition_error before any message; on every partner alike if the fault is on all or the transport is
///           `checked`
template <execution Execution, class Communicator, quantizer Quantizer, tensors_in<typename Execution::space> Shard,
          scratch_in<typename Execution::space> Scratch = none>
void mirror_shards(const Execution& exec, Communicator& partners,
                   shard_mirror<Quantizer, typename Execution::space>& mirror, Shard&& shard, std::uint64_t version,
                   Scratch&& scratch = {}) {
    using space = typename Execution::space;
    using T = detail::element_of_tensors<Shard, space>;
    using codec = zeropp::codec<Execution>;
    static_assert(codec_execution<Execution, Quantizer, T>, "no codec for this execution: include its entry header");
    const auto in = detail::operand_of<space>(shard);
    const auto whole = mirror.whole(in);
    const std::size_t bytes = mirror.message_bytes();

    detail::prologue call("mirror_shards", mirror.elements(), element_traits<T>::name, partners.topology());
    call.quantize_with(mirror.stored_as());
    call.agree(whole.text());
    call.agree(mirror.text());
    call.agree(agreed_text("version ").append(version));
    call.require([&] { return mirror.partners_problem(partners.topology(), partners.rank()); });
    call.require([&] { return mirror.shard_problem(in); });
    call.run(pipeline(exec), partners.world(), scratch, most_served(partners.topology()) * bytes, [&](std::byte* work) {
        if (mirror.elements() != 0) {
            const auto all = typename decltype(whole)::chunks(whole, 1, Quantizer::block_size)[0];
            const auto at = [&](int slot) { return work + static_cast<std::size_t>(slot) * bytes; };
            std::byte* const own = at(partners.group_id());
            codec::write(exec, detail::in_phase(mirror.stored_as(), noise_phase::copy), in.tensor(),
                         all.in_own(mirror.rank()), own);
            const served_slots served = served_by(partners.topology(), partners.rank());
            for (int i = 0; i != served.size(); ++i) {
                for (int l = Communicator::levels - 1; l > 0; --l) {
                    partners.gather(l, exec, served[i], {own, at(served[i].place), bytes});
                }
            }
            // A stream may copy although messages have failed; a host_queue then skips the copies.
            if constexpr (!host_execution<Execution>) mirror.invalidate();
            std::byte* to = mirror.message();
            for (const detail::mirrored_shard& kept : mirror.kept()) {
                exec.copy(to, at(kept.slot), bytes);
                to += bytes;
            }
        }
    });
    // Behind `run`, which may have waited for the work, and thrown its error.
    mirror.stamp(version);
}

}  // namespace zeropp
