#pragma once
/// \file
/// The outer step of training with local steps: islands train by themselves and exchange their progress rarely.

#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/local_steps/outer_optimizer.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <string>

namespace zeropp {

namespace detail {
constexpr all_reduce_options outer_reduction(const outer_options& options) {
    return {.operation = reduction::mean, .chunks = options.chunks};
}
}  // namespace detail

/// Bytes of workspace that outer_step and outer_begin need. `counterparts` is the topology of the ranks with equal
/// shards, one in each island.
template <topology Topology, reduction_hops Hops, class Space, class Rule>
std::size_t outer_step_workspace_bytes(const Topology& counterparts, const Hops& by_hop,
                                       const outer_optimizer<Space, Rule>& outer, const outer_options& options = {}) {
    if (counterparts.size() == 1) return 0;
    return quantized_all_reduce_workspace_bytes(counterparts, by_hop, outer.differences(),
                                                detail::outer_reduction(options));
}

/// Begins an exchange between islands: takes the difference of the anchor to this rank's weights, and replaces the
/// difference by its mean over islands. `outer.apply` uses the mean, at once or some inner steps later. Inner steps may
/// run meanwhile, on another execution.
///
/// Shapes    weights: this rank's shards, an array or a tensor_list, as `outer` was made for. Ranks of `comm` are one
///           rank of each island, with equal shards. Scratch as outer_step_workspace_bytes(...), aligned to 16 bytes
/// Result    the mean in `outer`, as quantized_all_reduce makes it: the same bits in all islands. With one island, the
///           difference itself. Weights, anchor and the rule's slots are unchanged
/// Returns   the event on `exec` after which weights may change; work behind the event still communicates
/// Moves     between islands, as quantized_all_reduce of the rank's shards; nothing with one island
/// Order     enqueued on `exec`, or on both executions of a pipeline; complete when `intra_node` is. The weights must
///           be complete on `exec`: let `exec` wait for the inner step first. Without scratch, allocates and blocks
///           until complete
/// Feedback  with `with_error_feedback` in place of `by_hop`, adds the residuals of the last exchange. Make one
///           error_feedback for the `differences()` of each outer_optimizer
/// Requires  the same shards, quantizers, rule, options and number of exchanges on all ranks of `comm`; otherwise as
///           quantized_all_reduce
/// Throws    precondition_error before any message; on every rank alike if the fault is on all or the transport is
///           `checked`
/// Source    DiLoCo (arXiv 2311.08105); Streaming DiLoCo (arXiv 2501.18512), algorithm 2
template <execution_or_pipeline Exec, class Communicator, reduction_hops Hops, tensors_in<space_of<Exec>> Weights,
          class Rule, scratch_in<space_of<Exec>> Scratch = none>
auto outer_begin(const Exec& exec, Communicator& comm, const Hops& by_hop, const Weights& weights,
                 outer_optimizer<space_of<Exec>, Rule>& outer, const outer_options& options = {},
                 Scratch&& scratch = {}) {
    using space = space_of<Exec>;
    const pipeline on(exec);
    using T = detail::element_of_tensors<const Weights, space>;
    const auto& q = detail::quantizers_of(by_hop);

    detail::prologue call("outer_step", outer.elements(), element_traits<T>::name, comm.topology());
    call.quantize_with(q);
    call.agree(options.text());
    call.agree(agreed_text("exchange ").append(outer.exchanges()));
    call.agree(outer.rule().text());
    call.require([&] { return options.problem(); });
    call.require([&] { return outer.problem(weights); });
    call.require([&] { return tensors_shape(outer.differences()).problem(sharing_ranks{comm.size()}); });
    call.require([&]() -> std::string {
        return outer.pending() ? "expected an outer optimizer without an exchange, given one whose last exchange waits "
                                 "for `apply`"
                               : std::string();
    });
    call.begin(comm.world());

    outer.take_difference(on.intra_node, weights);
    auto taken = on.intra_node.record();
    if (comm.size() != 1) {
        quantized_all_reduce(exec, comm, by_hop, outer.differences(), outer.differences(),
                             detail::outer_reduction(options), scratch);
    }
    outer.advance(on.intra_node);
    if constexpr (detail::blocks_with<Scratch, space>) wait_for(comm.world(), on.intra_node);
    return taken;
}

/// Exchanges the islands' progress and uses it at once: outer_begin, then `outer.apply`. For exchanges beside inner
/// steps, call outer_begin and `apply` apart. Anchor and the rule's slots have the same bits in all islands, and so
/// have weights if alpha is 0.
///
/// Result    anchor, the rule's slots and weights as `outer.apply` says
/// Shapes, Moves, Order, Feedback, Requires, Throws, Source    as outer_begin
template <execution_or_pipeline Exec, class Communicator, reduction_hops Hops,
          mutable_tensors_in<space_of<Exec>> Weights, class Rule, scratch_in<space_of<Exec>> Scratch = none>
void outer_step(const Exec& exec, Communicator& comm, const Hops& by_hop, Weights&& weights,
                outer_optimizer<space_of<Exec>, Rule>& outer, const outer_options& options = {},
                Scratch&& scratch = {}) {
    outer_begin(exec, comm, by_hop, weights, outer, options, scratch);
    outer.apply(pipeline(exec).intra_node, weights, options);
    if constexpr (detail::blocks_with<Scratch, space_of<Exec>>) wait_for(comm.world(), pipeline(exec).intra_node);
}

}  // namespace zeropp
