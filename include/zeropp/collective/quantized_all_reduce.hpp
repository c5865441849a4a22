#pragma once
/// \file
/// The gradient all-reduce of data parallelism, moving quantized blocks in place of elements.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/moves.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/schedule.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

namespace zeropp {

namespace detail {

/// Algorithm, chunks and buffers of an all-reduce over `Levels` levels. Of the `Count` message formats, each level has
/// one, and the all-gather phase the last.
template <class Division, std::size_t Count, int Levels>
struct all_reduce_plan {
    static constexpr int all_gather = static_cast<int>(Count) - 1;  // index of the all-gather phase's format

    reduction_plan<Division, Count, Levels> reduce;
    bool one_shot;
    std::size_t gathered_bytes = 0;  // of all slots' messages: of a chunk's sums, or in one-shot of tensors

    /// Plan for the chunks and message formats in `sizes`. With error feedback (`feeds_back`), `by_size` means
    /// two-shot, because only two-shot keeps residuals.
    template <topology Topology>
    all_reduce_plan(const Topology& ranks, const schedule<Division, Count>& sizes, all_reduce_algorithm wanted,
                    bool feeds_back = false)
        : reduce(ranks, sizes) {
        const std::size_t first_hop = sizes.formats[first_hop_of(ranks)].bytes_of(sizes.whole);
        const std::size_t last_hop = sizes.formats[all_gather].bytes_of(sizes.whole);
        one_shot = wanted == all_reduce_algorithm::by_size
                       ? !feeds_back && prefers_one_shot(ranks.size(), first_hop, last_hop)
                       : wanted == all_reduce_algorithm::one_shot;
        if (sizes.cut.size() == 0) return;
        gathered_bytes = static_cast<std::size_t>(slot_count(ranks)) *
                         (one_shot ? static_cast<std::size_t>(ranks.size()) * first_hop : sizes.largest(all_gather));
    }

    std::size_t workspace_bytes() const {
        if (one_shot) return gathered_bytes;
        return reduce.workspace_bytes() + std::min<std::size_t>(reduce.sizes.cut.size(), 2) * gathered_bytes;
    }

    /// Address in `workspace` of the messages of chunk c in the all-gather phase. Chunks c and c + 2 use the same
    /// memory.
    std::byte* gathered(std::byte* workspace, std::size_t c) const {
        return workspace + reduce.workspace_bytes() + c % 2 * gathered_bytes;
    }
};

template <topology Topology, class Division, std::size_t Count, class... More>
all_reduce_plan(const Topology&, const schedule<Division, Count>&, More...)
    -> all_reduce_plan<Division, Count, Topology::levels>;

/// Moves the messages of slots that have a rank to the front, in slot order. `messages` has one of `bytes` bytes for
/// each slot. If nodes differ in size, some slots have no rank.
template <execution Execution, topology Topology>
void drop_empty_slots(const Execution& exec, const Topology& ranks, std::byte* messages, std::size_t bytes) {
    if (has_equal_groups(ranks)) return;
    std::byte* to = messages;
    for (int slot = 0; slot != slot_count(ranks); ++slot) {
        if (slot / ranks.groups() >= ranks.group_size(slot % ranks.groups())) continue;
        const std::byte* const from = messages + static_cast<std::size_t>(slot) * bytes;
        if (from != to) exec.copy(to, from, bytes);
        to += bytes;
    }
}

/// One-shot: gathers all ranks' tensors on every rank, which sums them and divides the sums by `divisor`. `out` has the
/// sizes of `call.full`.
template <class Call, class Result>
void gather_and_sum(const Call& call, const Result& out, float divisor) {
    using codec = typename Call::codec;
    const auto& exec = call.exec;
    auto& comm = call.comm;
    const auto& ranks = comm.topology();
    with_first_hop(ranks, [&]<int Level>(level_t<Level> first) {
        const auto& q = call.by_level.at(first);
        const schedule sizes(call.plan.sizes.whole, 1, std::array{call.plan.sizes.formats[Level]});
        const std::size_t bytes = static_cast<std::size_t>(ranks.size()) * sizes.bytes(0, 0);
        codec::write(exec.intra_node, q, call.full.tensor(), sizes.cut[0].in_slots({}, 0, ranks.size()),
                     comm.own(call.work, bytes));
        start_after(exec.inter_node, exec.intra_node);
        gather_across(exec.inter_node, comm, call.work, bytes);
        start_after(exec.intra_node, exec.inter_node);
        gather_within(exec.intra_node, comm, call.work, bytes);
        drop_empty_slots(exec.intra_node, ranks, call.work, bytes);
        codec::read(exec.intra_node, message_sum{q, call.work, ranks.size(), divisor},
                    sizes.cut.of(out.divided({ranks.size()}))[0].in_slots({}, 0, ranks.size()), out.tensor());
    });
}

/// Two-shot: sums each shard on one rank, divides the sum by `divisor`, then gathers the results on all ranks. `plan`
/// is an all_reduce_plan.
template <class Call, class Plan, class Result>
void scatter_and_gather(const Call& call, const Plan& plan, const Result& out, float divisor) {
    using execution_type = typename Call::execution_type;
    using codec = typename Call::codec;
    const auto& exec = call.exec;
    auto& comm = call.comm;
    const auto& q = call.by_level.last();
    const auto& ranks = comm.topology();
    const auto& sizes = call.plan.sizes;
    const auto& cut_of_result = sizes.cut.of(out.divided({ranks.size()}));
    std::byte* const in_place = messages_in_place<std::remove_cvref_t<decltype(q)>>(out, sizes.cut[0], ranks);
    const auto gathered = [&](std::size_t c) { return in_place != nullptr ? in_place : plan.gathered(call.work, c); };
    const auto way_out = [&](std::size_t c) {
        const std::size_t bytes = sizes.bytes(c, Plan::all_gather);
        std::byte* const messages = gathered(c);
        call.reduce(c, [&](const auto& on, const auto& from, const std::byte* parts, int contributors) {
            codec::write(on, in_phase(q, noise_phase::gather), message_sum{from, parts, contributors, divisor},
                         sizes.cut[c].in_own(comm.rank()), comm.own(messages, bytes), call.memory.all_gather());
        });
        gather_across(exec.inter_node, comm, messages, bytes);
        return crossed(exec);
    };
    const auto way_in = [&](std::size_t c, const crossed_work<execution_type>& gathered_across) {
        std::byte* const messages = gathered(c);
        start_after(exec, gathered_across);
        gather_within(exec.intra_node, comm, messages, sizes.bytes(c, Plan::all_gather));
        if (in_place != nullptr) return;
        codec::read(exec.intra_node, one_message{q, messages},
                    cut_of_result[c].in_slots(ranks.order(), 0, slot_count(ranks)), out.tensor());
    };
    join(exec);
    // While a chunk crosses the last level, the next one is summed along the other levels, and the previous one
    // gathered. Chunk c + 2 uses the buffers of chunk c, but only after `intra_node` has gathered chunk c.
    auto before = way_out(0);
    for (std::size_t c = 1; c != sizes.cut.size(); ++c) {
        auto now = way_out(c);
        way_in(c - 1, before);
        before = std::move(now);
    }
    way_in(sizes.cut.size() - 1, before);
}

/// Why tensors or residuals do not fit the call, as "expected ..., given ..."; empty if they do.
template <class Plan, class Full, class Result, class Memory, topology Topology>
std::string all_reduce_problem(const Plan& plan, const Full& full, const Result& out, const Memory& memory,
                               const Topology& ranks) {
    if (std::string problem = full.whole_problem(ranks); !problem.empty()) return problem;
    if (std::string problem = out.same_problem(full, ranks); !problem.empty()) return problem;
    if (out.overlaps_partly(full)) {
        return "expected a result that is full or apart from it, given one that overlaps it elsewhere";
    }
    if (std::string problem = memory.problem(plan.reduce.sizes.whole, ranks); !problem.empty()) return problem;
    // In `one_shot`, all ranks make all sums, so that residuals of a sum would have no owner.
    if (!feeds_back<Memory> || !plan.one_shot) return {};
    return "expected the algorithm `two_shot` for error feedback, given `one_shot`";
}

}  // namespace detail

/// Bytes of workspace that quantized_all_reduce needs. `tensors` is an element count, or a tensor_list of whole
/// tensors.
template <topology Topology, reduction_hops Hops>
std::size_t quantized_all_reduce_workspace_bytes(const Topology& ranks, const Hops&, const tensors_shape& tensors,
                                                 const all_reduce_options& options = {}) {
    return tensors.divided({ranks.size()}, [&](const auto& whole) {
        const auto& formats = detail::formats_of<detail::hops_of<Hops>>;
        const std::size_t message = formats[Topology::levels - 1].bytes_of(whole);
        const auto bytes = [&](all_reduce_algorithm algorithm) {
            return detail::largest_for_chunks(options.chunks, ranks, message, [&](int chunks) {
                return detail::all_reduce_plan(ranks, detail::schedule(whole, chunks, formats), algorithm)
                    .workspace_bytes();
            });
        };
        // With error feedback, `by_size` means `two_shot`, which may need more.
        return options.algorithm == all_reduce_algorithm::by_size
                   ? std::max(bytes(options.algorithm), bytes(all_reduce_algorithm::two_shot))
                   : bytes(options.algorithm);
    });
}

/// Reduces every rank's tensor and leaves all ranks the whole result, moving quantized blocks in place of elements.
/// Two-shot: each rank's shard is summed as by hierarchical_quantized_reduce_scatter, with a quantizer of `by_hop` for
/// each level. The sum is encoded with the last quantizer, of the all-gather phase, and gathered as by
/// quantized_all_gather. One-shot, for two ranks and for small tensors: every rank gathers and sums all tensors.
///
/// Shapes    full and result [n]; scratch as quantized_all_reduce_workspace_bytes(...), aligned to 16 bytes. Or
///           tensor_lists of whole tensors
/// Result    decode(encode(sum or mean)) in float, rounded to the element type once. The sum is that of
///           hierarchical_quantized_reduce_scatter, never rounded to the element type before. In `one_shot`, each
///           rank's tensor is quantized once, with the first hop's quantizer. The sum over ranks is by index, then by
///           node (with three levels, then by site), and is not encoded again. The bits are equal on all ranks, and do
///           not depend on execution, transport or chunks
/// In place  result may be full, if no two tensors of a list share memory. Otherwise result and full must not overlap,
///           and full is not changed. Tensors of a list may have other gaps in result than in full
/// Moves     as hierarchical_quantized_reduce_scatter, then as quantized_all_gather with the last quantizer. Messages
///           are not encoded again for the node, which could only lose more. In `one_shot`, as quantized_all_gather.
///           Lossless messages may be sent from full and received in result (docs/architecture.md, Memory)
/// Order     enqueued on `exec`, or on both executions of a pipeline, where hops of chunks overlap; complete when
///           `intra_node` is (after a throw, when both are). host{} has finished on return. Arrays, lists, communicator
///           and executions must outlive the work. Without scratch, allocates a workspace and blocks until complete
/// Feedback  with `with_error_feedback` in place of `by_hop`, adds the residuals of the last call on every hop, and
///           keeps new ones. Error feedback needs `two_shot`
/// Requires  a quantizer for each level, from level 0 on (two for a single level), and one of the all-gather phase; the
///           same n or list, element type, quantizers and options on all ranks; all ranks with one execution or all
///           with a pipeline; with a pipeline on MPI, MPI_THREAD_MULTIPLE
/// Throws    precondition_error for wrong arguments, before any message; on every rank alike if the fault is on all
///           ranks or the transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), sections 3.1 and 3.3, joined
template <execution_or_pipeline Exec, class Communicator, reduction_hops Hops, tensors_in<space_of<Exec>> Full,
          mutable_tensors_in<space_of<Exec>> Result, scratch_in<space_of<Exec>> Scratch = none>
void quantized_all_reduce(const Exec& exec, Communicator& comm, const Hops& by_hop, Full&& full, Result&& result,
                          const all_reduce_options& options = {}, Scratch&& scratch = {}) {
    using space = space_of<Exec>;
    const pipeline on(exec);
    using execution_type = typename decltype(on)::execution_type;
    using T = typename detail::shared_element<space, Result, Full>::type;
    using quantizers = detail::hops_of<Hops>;
    constexpr int levels = Communicator::levels;
    static_assert(detail::all_reduces<quantizers, levels>,
                  "an all-reduce has a quantizer for each level, at least two, and one for the all-gather phase");
    static_assert(detail::has_codecs<execution_type, quantizers, T>,
                  "no codec for this execution: include its entry header");

    const auto in = detail::operand_of<space>(full);
    const auto out = detail::operand_of<space>(result);
    const auto& ranks = comm.topology();
    const auto whole = in.divided({ranks.size()});
    const auto& formats = detail::formats_of<quantizers>;
    const std::size_t message = formats[levels - 1].bytes_of(whole);
    const int chunks = detail::chunks_for(options.chunks, ranks, message, detail::overlaps_hops(on));

    const quantizers& q = detail::quantizers_of(by_hop);
    auto&& memory = detail::residuals_of(by_hop);
    const detail::all_reduce_plan plan(ranks, detail::schedule(whole, chunks, formats), options.algorithm,
                                       detail::feeds_back<std::remove_cvref_t<decltype(memory)>>);
    const float divisor = detail::divisor_of(options.operation, ranks.size());

    detail::prologue call("quantized_all_reduce", whole.elements(), element_traits<T>::name, ranks);
    detail::agree_on_reduction(call, q, whole, plan.one_shot ? options.text() : options.text(chunks), memory);
    call.require_chunks(options.chunks);
    call.require([&] { return detail::all_reduce_problem(plan, in, out, memory, ranks); });
    call.run(on, comm.world(), scratch, plan.workspace_bytes(), [&](std::byte* work) {
        const detail::reduction_call reduction{on, comm, q, plan.reduce, in, work, memory};
        if (whole.elements() != 0 && plan.one_shot) {
            detail::gather_and_sum(reduction, out, divisor);
        } else if (whole.elements() != 0) {
            detail::scatter_and_gather(reduction, plan, out, divisor);
        }
        memory.advance();
    });
}

}  // namespace zeropp
