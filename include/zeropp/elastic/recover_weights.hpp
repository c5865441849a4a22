#pragma once
/// \file
/// Shards of the survivors of a failure, from copies of the weights and from old shards that survivors hold.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/kept_messages.hpp>
#include <zeropp/collective/moves.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/core/config.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/elastic/held_copies.hpp>
#include <zeropp/elastic/survivors.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp {

namespace detail {

/// Why the array `operand` is not the shard of `rank` in the division `of`, as "expected ..., given ..."; empty if it
/// is.
template <class T, class Space>
std::string shard_problem_of(const array_operand<T, Space>& operand, const std::vector<segment>& of, int rank) {
    if (of.size() != 1) return "expected a list of " + std::to_string(of.size()) + " shards, given an array";
    return shard_problem(of[0].part, rank, operand.elements());
}
/// Why the list `operand` is not the list of shards of `rank` in the division `of`; empty if it is.
template <class T, class Space>
std::string shard_problem_of(const list_operand<T, Space>& operand, const std::vector<segment>& of, int rank) {
    return operand.shard_problem(list_division(of, nullptr, 0, 0), rank);
}

/// Function of an index i that stores from[i] in to[i], converted through float if types differ.
template <class From, class To>
struct convert {
    const From* from;
    To* to;

    ZEROPP_HOST_DEVICE void operator()(std::size_t i) const {
        if constexpr (std::is_same_v<From, To>) {
            to[i] = from[i];
        } else {
            to[i] = element_traits<To>::from_float(element_traits<From>::to_float(from[i]));
        }
    }
};

/// Moves the pieces of `plan` to their destinations, into the new shards `out`, chunk by chunk. In each chunk, the
/// pieces from one rank are one message, and all ranks gather all messages. address(piece) is the address of a piece on
/// the rank that sends it. Allocates and blocks.
template <class Moved, execution Execution, class Communicator, class Out, class Address>
void move_pieces(const Execution& exec, Communicator& comm, const recovery_plan& plan, const Out& out,
                 Address address) {
    using T = typename Out::element_type;
    using codec = zeropp::codec<Execution>;
    std::size_t largest = 0;
    for (std::size_t c = 0; c != plan.chunks(); ++c) {
        largest = std::max(largest, plan.for_each_piece(c, [](const recovered_piece&) {}));
    }
    workspace<typename Execution::space> memory(static_cast<std::size_t>(slot_count(comm.topology())) * largest);
    std::byte* const messages = memory.view().data();
    run_to_completion(pipeline(exec), comm.world(), [&] {
        for (std::size_t c = 0; c != plan.chunks(); ++c) {
            const std::size_t bytes = plan.for_each_piece(c, [](const recovered_piece&) {});
            if (bytes == 0) continue;
            std::byte* const own = comm.own(messages, bytes);
            plan.for_each_piece(c, [&](const recovered_piece& p) {
                if (p.from != comm.rank()) return;
                exec.copy(own + p.offset, address(p), p.count * sizeof(Moved));
            });
            gather_across(exec, comm, messages, bytes);
            gather_within(exec, comm, messages, bytes);
            plan.for_each_piece(c, [&](const recovered_piece& p) {
                if (p.to != comm.rank()) return;
                const std::byte* const message =
                    messages + static_cast<std::size_t>(slot_of(comm.topology(), p.from)) * bytes;
                codec::each(exec, p.count,
                            convert<Moved, T>{reinterpret_cast<const Moved*>(message + p.offset),
                                              out[p.tensor].data() + p.begin - plan.own_offset(p.tensor)});
            });
        }
    });
}

/// Version of the messages that a rank keeps, as ranks send it to each other.
struct stored_version {
    std::uint64_t version;
    std::uint64_t stored;  // 1 if there is a version, otherwise 0
};

/// Gathers the versions of the messages that all ranks keep, in rank order. `version` is this rank's. Blocks.
template <execution Execution, class Communicator>
std::vector<stored_version> gather_versions(const Execution& exec, Communicator& comm,
                                            const std::optional<std::uint64_t>& version) {
    using space = typename Execution::space;
    const stored_version own{version.value_or(0), version ? 1u : 0u};
    std::vector<stored_version> versions(static_cast<std::size_t>(comm.size()));
    workspace<space> sent(sizeof own), received(versions.size() * sizeof own);
    sent.assign(&own, sizeof own);
    run_to_completion(pipeline(exec), comm.world(), [&] {
        comm.world().all_gather(exec, sent.view().data(), received.view().data(), sizeof own);
        exec.copy_to_host(versions.data(), received.view().data(), versions.size() * sizeof own);
    });
    return versions;
}

/// Returns the newest version of which survivors hold all elements to recover, and lets `plan` use copies of that
/// version only. If there is no such version: returns 0 if nothing is stored nor to be recovered, otherwise throws
/// no_copy_error.
inline std::uint64_t choose_version(recovery_plan& plan, const std::vector<stored_version>& versions) {
    std::vector<std::uint64_t> newest;
    for (const stored_version& v : versions) {
        if (v.stored != 0) newest.push_back(v.version);
    }
    std::ranges::sort(newest, std::greater());
    newest.erase(std::unique(newest.begin(), newest.end()), newest.end());
    std::string given = "none, since all are empty";
    if (newest.empty()) {
        plan.count_copies_of(std::vector<bool>(versions.size(), false));
        if (plan.lost().empty()) return 0;
    }
    for (const std::uint64_t version : newest) {
        std::vector<bool> holds;
        holds.reserve(versions.size());
        for (const stored_version& v : versions) holds.push_back(v.stored != 0 && v.version == version);
        plan.count_copies_of(std::move(holds));
        const std::vector<lost_range> lost = plan.lost();
        if (lost.empty()) return version;
        if (version == newest.front()) {
            given = "none of version " + std::to_string(version) + " for " + text_of(lost);
        }
    }
    throw no_copy_error("recover_weights",
                        "each element in the secondary partition, replica or mirror of a surviving rank", given);
}

/// Begins a recovery: checks the arguments and, if the transport is `checked`, compares them with other ranks'. Throws
/// precondition_error if an argument is wrong, or if problem() returns a text.
template <class Communicator, class Call, class Out, class Problem>
void begin_recovery(prologue& call, Communicator& comm, const Call& recovery, const Out& out, Problem problem) {
    const auto& from = recovery.from;
    const auto& options = recovery.options;
    const tensors_shape tensors(recovery.tensors);
    call.agree(tensors.divided({from.before.size()}, [](const auto& whole) { return whole.text(); }));
    call.agree(agreed_text("survivors ").append(text_of(from.ranks)));
    call.agree(agreed_text("of ")
                   .append(group_sizes_text(from.before))
                   .append(" in places ")
                   .append(topology_digest(from.before)));
    call.agree(agreed_text(options.lost_shards_only ? "lost shards" : "all shards")
                   .append(" by ")
                   .append(options.chunk_bytes)
                   .append(" bytes"));
    call.require([&] { return from.problem(comm.size()); });
    call.require([&] { return tensors.problem(sharing_ranks{from.before.size()}); });
    call.require(problem);
    call.require([&] { return shard_problem_of(out, recovery.after, comm.rank()); });
    call.begin(comm.world());
}

}  // namespace detail

/// Recovers the weights that dead ranks have taken with them. Survivors of a failure call this on the communicator that
/// `shrink` has made. Each survivor gets its new shards from the secondary partitions, or secondary replicas, that
/// survivors hold. Before the failure, each node held all weights, so that other nodes hold a dead rank's part.
///
/// Or recovers lost shards of other tensors, such as an optimizer's moments, from mirrors (shard_mirror). This needs
/// lost_shards_only, because a mirror holds only the shards of partners.
///
/// Recovers the newest version of which survivors hold all elements or, with lost_shards_only, all lost elements.
/// Returns this version; 0 if no rank has stored one and nothing is to be recovered. Ranks that stored another version
/// do not count as holders. Versions differ if a rank has died between two stores.
///
/// Shapes    tensors: n, or the tensor_list of whole tensors for which `secondary` was made; only sizes are used.
///           shard [partition(n, comm.size()).size(comm.rank())], of any element type, or a tensor_list of this rank's
///           shards of these tensors over the ranks of `comm`
/// Result    shard == this rank's shard of the stored weights. From a partition: of the whole tensors that
///           secondary_partition_gather makes, with the same bits. If these weights were stored after a quantized
///           gather, they are quantized. From a replica: of its elements, not quantized by `IntraNode`. From a mirror:
///           of the shards that mirror_shards has sent, as decode(encode(...)) of each
/// Moves     each element from one survivor, by an all-gather of chunks: each element between nodes once per link.
///           Elements that `cast_to` has stored move as they are, others decoded. Besides, 16 bytes for each rank
/// Memory    about chunk_bytes times the number of ranks of `comm`, divided by the number of holders of an element.
///           For a block quantizer also the messages that this rank keeps, decoded
/// Order     blocks. Allocates
/// Requires  the same survivors, tensors, element type, quantizer and options on all ranks; shards apart from
///           `secondary`; replicas of the shards of all ranks (no shard_owners)
/// Throws    no_copy_error on all ranks alike, naming the lost elements, if survivors hold no version of all elements;
///           precondition_error before any message: sizes or topologies that do not fit; on every rank alike if the
///           fault is on all and does not depend on the rank, or the transport is `checked`
template <execution Execution, class Communicator, topology Topology,
          detail::copies_in<typename Execution::space> Secondary, class Tensors,
          mutable_tensors_in<typename Execution::space> Shard>
std::uint64_t recover_weights(const Execution& exec, Communicator& comm, const survivors_of<Topology>& from,
                              const Secondary& secondary, const Tensors& tensors, Shard&& shard,
                              const recovery_options& options = {}) {
    using space = typename Execution::space;
    using T = detail::element_of_tensors<Shard, space>;
    using moved = typename detail::moved_element<typename Secondary::stored_quantizer, T>::type;
    const auto out = detail::operand_of<space>(shard);
    const Topology& before = from.before;
    const detail::recovery_call recovery(from, tensors, options, comm.size());

    detail::prologue call("recover_weights", secondary.elements(), element_traits<T>::name, comm.topology());
    call.quantize_with(secondary.stored_as());
    detail::begin_recovery(call, comm, recovery, out, [&]() -> std::string {
        const int rank = from.ranks[static_cast<std::size_t>(comm.rank())];
        if (std::string problem = detail::copies_problem(secondary, before, rank); !problem.empty()) return problem;
        if (std::string problem = secondary.shape_problem(tensors); !problem.empty()) return problem;
        return out.overlaps(secondary.storage()) ? "expected shards apart from the secondary weights, given an overlap"
                                                 : "";
    });
    const auto versions = detail::gather_versions(exec, comm, secondary.version());
    detail::recovery_plan plan(recovery, detail::copies_of(secondary, before, tensors), comm.rank(), sizeof(moved));
    const std::uint64_t version = detail::choose_version(plan, versions);
    const bool nothing_lost = from.ranks.size() == static_cast<std::size_t>(before.size());
    if (secondary.elements() == 0 || (options.lost_shards_only && nothing_lost)) return version;
    workspace<space> decoded(0);
    detail::move_pieces<moved>(exec, comm, plan, out,
                               detail::stored_elements<moved>(exec, secondary, tensors, decoded));
    return version;
}

/// Divides tensors anew over the survivors of a failure: from their old shards, to shards over the communicator that
/// `shrink` has made. Elements of lost shards keep the values that `shard` has: fill these before, by recover_weights,
/// or with zeros for an optimizer's moments. Exact: elements move without conversion.
///
/// Shapes    tensors: n, or the tensor_list of whole tensors over the ranks before the failure; only sizes are used.
///           old_shard [partition(n, from.before.size()).size(the rank before the failure)] and shard
///           [partition(n, comm.size()).size(comm.rank())], of one element type, or tensor_lists of these shards
/// Moves     each element from its owner to all survivors, by an all-gather of chunks: once per link between nodes
/// Memory    about options.chunk_bytes. `lost_shards_only` has no effect
/// Order     blocks. Allocates
/// Requires  the same survivors, tensors, element type and options on all ranks; shards apart from old shards
/// Throws    precondition_error before any message: sizes that do not fit; on every rank alike if the fault is on all
///           or the transport is `checked`
template <execution Execution, class Communicator, topology Topology, class Tensors,
          tensors_in<typename Execution::space> Old, mutable_tensors_in<typename Execution::space> Shard>
void redistribute_shards(const Execution& exec, Communicator& comm, const survivors_of<Topology>& from,
                         const Tensors& tensors, Old&& old_shard, Shard&& shard, recovery_options options = {}) {
    using space = typename Execution::space;
    using T = typename detail::shared_element<space, Shard, Old>::type;
    const auto in = detail::operand_of<space>(old_shard);
    const auto out = detail::operand_of<space>(shard);
    options.lost_shards_only = false;
    const detail::recovery_call recovery(from, tensors, options, comm.size());
    const std::vector<segment>& before = recovery.before;
    std::size_t elements = 0;
    for (const segment& s : before) elements += s.part.count();

    detail::prologue call("redistribute_shards", elements, element_traits<T>::name, comm.topology());
    detail::begin_recovery(call, comm, recovery, out, [&]() -> std::string {
        const int rank = from.ranks[static_cast<std::size_t>(comm.rank())];
        if (std::string problem = detail::shard_problem_of(in, before, rank); !problem.empty()) return problem;
        for (std::size_t t = 0; t != before.size(); ++t) {
            if (out.overlaps(view<const T, space>(in[t].data(), before[t].part.size(rank)))) {
                return "expected new shards apart from old ones, given an overlap";
            }
        }
        return {};
    });
    if (elements == 0) return;
    std::vector<int> owners(static_cast<std::size_t>(from.before.size()));
    std::iota(owners.begin(), owners.end(), 0);
    const int rank = from.ranks[static_cast<std::size_t>(comm.rank())];
    const detail::recovery_plan plan(recovery, {{before, std::move(owners)}}, comm.rank(), sizeof(T));
    detail::move_pieces<T>(exec, comm, plan, out, [&](const detail::recovered_piece& p) -> const T* {
        return in[p.tensor].data() + (p.begin - before[p.tensor].part.offset(rank));
    });
}

}  // namespace zeropp
