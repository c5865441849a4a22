#pragma once
/// \file
/// The gradient all-reduce of data parallelism, moving quantized blocks in place of elements.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/divided.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/gather_messages.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/reduce_scatter_plan.hpp>
#include <zeropp/collective/scratch.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/chunking.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace zeropp {

namespace detail {

/// The route of an all-reduce, its chunks, and its buffers.
template <quantizer Inside, quantizer Across, quantizer Back, class Division>
struct all_reduce_plan {
    reduce_scatter_plan<Inside, Across, Division> reduce;
    all_reduce_route route;
    std::size_t ranks;
    std::size_t gathered_bytes = 0;  // all ranks' messages on the way back, of the largest chunk; or all there are

    template <topology Topology>
    all_reduce_plan(const Topology& topology, const Division& whole, all_reduce_route wanted, int chunks)
        : reduce(topology, whole, chunks, Back::block_size), route(wanted_route(topology, whole, wanted)),
          ranks(static_cast<std::size_t>(topology.size())) {
        if (whole.elements() == 0) return;
        if (route == all_reduce_route::gather) {
            gathered_bytes = ranks * ranks * first_hop_bytes(topology, whole);
            return;
        }
        for (std::size_t c = 0; c != reduce.cut.size(); ++c) {
            gathered_bytes = std::max(gathered_bytes, ranks * chunk_wire_bytes<Back>(reduce.cut[c]));
        }
    }

    std::size_t workspace_bytes() const {
        if (route == all_reduce_route::gather) return gathered_bytes;
        return reduce.workspace_bytes() + std::min<std::size_t>(reduce.cut.size(), 2) * gathered_bytes;
    }

    /// The messages of the way back of chunk c.
    std::byte* gathered(std::byte* workspace, std::size_t c) const {
        return workspace + reduce.workspace_bytes() + c % 2 * gathered_bytes;
    }

private:
    /// Of one slice's message with the quantizer of the first hop.
    template <topology Topology>
    static std::size_t first_hop_bytes(const Topology& topology, const Division& whole) {
        return has_hop_inside(topology) ? whole_wire_bytes<Inside>(whole) : whole_wire_bytes<Across>(whole);
    }
    template <topology Topology>
    static all_reduce_route wanted_route(const Topology& topology, const Division& whole, all_reduce_route wanted) {
        const auto n = static_cast<std::size_t>(topology.size());
        return route_for(wanted, topology.size(), n * first_hop_bytes(topology, whole));
    }
};

/// Everybody's tensor to everybody, and the sum of all of them on each: no slice is anybody's own. `out` is divided as
/// `whole`, and lies where `result` does.
template <execution Execution, class Communicator, quantizer Q, class Division, class Tensor, class Result>
void gather_and_sum(const pipeline<Execution>& exec, Communicator& comm, const Q& q, const Division& whole,
                    const Division& out, Tensor full, Result result, float divisor, std::byte* messages) {
    using codec = zeropp::codec<Execution>;
    const auto& ranks = comm.topology();
    const typename Division::chunks all(whole, 1, Q::block_size);
    const auto slices = all[0].in_slots(ranks.order(), 0, ranks.size());
    const std::size_t bytes = static_cast<std::size_t>(ranks.size()) * chunk_wire_bytes<Q>(slices);
    codec::encode(exec.inside, q, full, slices, own_message(comm, messages, bytes));
    exec.across.wait(exec.inside.record());
    gather_across(exec.across, comm, messages, bytes);
    exec.inside.wait(exec.across.record());
    gather_inside(exec.inside, comm, messages, bytes);
    codec::reduce_decode(exec.inside, q, messages, ranks.size(),
                         all.of(out)[0].in_slots(ranks.order(), 0, ranks.size()), result, epilogue{divisor, false});
}

/// Each slice to one rank, which sums it, and from there to all. `out` is divided as the plan says, and lies where
/// `result` does.
template <execution Execution, class Communicator, quantizer Inside, quantizer Across, quantizer Back, class Plan,
          class Division, class Tensor, class Result, class Memory>
void scatter_and_gather(const pipeline<Execution>& exec, Communicator& comm, const Inside& inside, const Across& across,
                        const Back& back, const Plan& plan, const Division& out, Tensor full, Result result,
                        float divisor, std::byte* work, const Memory& memory) {
    using codec = zeropp::codec<Execution>;
    const auto& ranks = comm.topology();
    const auto& cut = plan.reduce.cut;
    const auto& cut_of_result = cut.of(out);
    const auto way_out = [&](std::size_t c) {
        const auto chunk = cut[c];
        const std::size_t bytes = chunk_wire_bytes<Back>(chunk);
        std::byte* const messages = plan.gathered(work, c);
        reduce_chunk(exec, comm, inside, across, plan.reduce, plan.reduce.buffers(work, c), full, chunk, memory,
                     [&](const Execution& on, const auto& from, const std::byte* parts, int contributors) {
                         codec::reduce_encode(on, from, parts, contributors, chunk.in_own(comm.rank()), back,
                                              own_message(comm, messages, bytes), memory.back(), divided_by{divisor});
                     });
        gather_across(exec.across, comm, messages, bytes);
        return exec.across.record();
    };
    const auto way_in = [&](std::size_t c, const typename Execution::event& crossed) {
        const auto chunk = cut_of_result[c];
        std::byte* const messages = plan.gathered(work, c);
        exec.inside.wait(crossed);
        gather_inside(exec.inside, comm, messages, chunk_wire_bytes<Back>(chunk));
        codec::decode(exec.inside, back, messages, chunk.in_slots(ranks.order(), 0, ranks.size()), result);
    };
    join(exec);
    // While a chunk crosses nodes, the next one is summed inside and the one before is gathered there. A chunk's
    // buffers are used again once it has been gathered: that comes first on `inside`.
    typename Execution::event crossed;
    std::size_t before = cut.size();
    for (std::size_t c = 0; c != cut.size(); ++c) {
        if (cut[c].sections() == 0) continue;
        typename Execution::event now = way_out(c);
        if (before != cut.size()) way_in(before, crossed);
        crossed = std::move(now);
        before = c;
    }
    if (before != cut.size()) way_in(before, crossed);
}

/// What a call needs, whether its hops overlap or not.
template <quantizer Inside, quantizer Across, quantizer Back, topology Topology, class Division>
std::size_t all_reduce_workspace(const Topology& ranks, const Division& whole, const all_reduce_options& options) {
    const auto bytes = [&](all_reduce_route route) {
        return largest_for_chunks(options.chunks, ranks, whole_wire_bytes<Across>(whole), [&](int chunks) {
            return all_reduce_plan<Inside, Across, Back, Division>(ranks, whole, route, chunks).workspace_bytes();
        });
    };
    // With error feedback it is the latter whatever the size.
    return options.route == all_reduce_route::by_size ? std::max(bytes(options.route), bytes(all_reduce_route::scatter))
                                                      : bytes(options.route);
}

}  // namespace detail

/// Bytes of workspace that quantized_all_reduce needs for a tensor of so many elements, or for a tensor_list of whole
/// tensors.
template <topology Topology, quantizer Inside, quantizer Across, quantizer Back>
std::size_t quantized_all_reduce_workspace_bytes(const Topology& ranks, const Inside&, const Across&, const Back&,
                                                 const tensors_shape& tensors, const all_reduce_options& options = {}) {
    return detail::over_ranks(ranks, tensors, [&](const auto& whole) {
        return detail::all_reduce_workspace<Inside, Across, Back>(ranks, whole, options);
    });
}

/// Reduces every rank's tensor and leaves all ranks the whole result, moving quantized blocks in place of elements:
/// each rank's slice is summed as by hierarchical_quantized_reduce_scatter, inside the node with the quantizer `inside`
/// and across nodes with `across`, encoded with `back`, and gathered as by quantized_all_gather. Small tensors go round
/// whole and every rank sums them.
///
/// Shapes    full and result [n]; scratch as quantized_all_reduce_workspace_bytes(...), aligned to 16 bytes. Or
///           tensor_lists of whole tensors
/// Result    decode(encode(sum or mean)) in float, rounded to the element type once: the same bits on all ranks. The
///           sum is that of hierarchical_quantized_reduce_scatter, never rounded to the element type on its way. On the
///           route `gather`, the sum over the ranks, by index and then by node, each quantized once with the first
///           hop's quantizer, and not encoded again. The bits do not depend on execution or transport, nor on chunks,
///           but of a message_scaled_quantizer
/// In place  result may be full, if no two tensors of a list share memory; otherwise they must not overlap, and full is
///           not changed. Tensors of a list may have other gaps in result than in full
/// Moves     out as hierarchical_quantized_reduce_scatter, back as quantized_all_gather: what crossed nodes with `back`
///           goes round the node as it is, for encoding it anew could only lose more
/// Order     enqueued on `exec`, or on both executions of a pipeline, where chunks let the hops overlap; complete when
///           `inside` is (if it throws, when both are); host{} has finished on return. Arrays, lists, communicator and
///           executions must outlive the work. Without scratch, allocates a workspace and blocks until the work is
///           complete
/// Feedback  with an error_feedback that has this `Back` at the end, what quantization lost the last time is added, on
///           every hop, and what it loses now is kept. It needs the route `scatter`
/// Requires  the same n, or list, element type, quantizers and options on all ranks, and on all one execution or on all
///           a pipeline; with a pipeline on MPI, MPI_THREAD_MULTIPLE
/// Throws    precondition_error before any message; on every rank alike if what is wrong is wrong on every rank or the
///           transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), sections 3.1 and 3.3, joined
template <executes Exec, class Communicator, quantizer Inside, quantizer Across, quantizer Back,
          tensors_in<space_of<Exec>> Full, mutable_tensors_in<space_of<Exec>> Result,
          scratch_in<space_of<Exec>> Scratch = allocate_scratch, class Memory = no_error_feedback>
void quantized_all_reduce(const Exec& exec, Communicator& comm, const Inside& inside, const Across& across,
                          const Back& back, Full&& full, Result&& result, const all_reduce_options& options = {},
                          Scratch&& scratch = {}, Memory&& memory = {}) {
    using space = space_of<Exec>;
    using execution_type = typename detail::pipeline_traits<Exec>::execution_type;
    using T = detail::element_of_tensors<Result, space>;
    static_assert(std::same_as<T, detail::element_of_tensors<Full, space>>,
                  "full and result must have the same element type");
    static_assert(detail::is_tensor_list<std::remove_cvref_t<Result>> ==
                      detail::is_tensor_list<std::remove_cvref_t<Full>>,
                  "full and result must both be arrays, or both tensor_lists");
    static_assert(codec_execution<execution_type, Inside, T> && codec_execution<execution_type, Across, T> &&
                      codec_execution<execution_type, Back, T>,
                  "no codec for this execution: include its entry header");

    const pipeline<execution_type> on = detail::pipeline_traits<Exec>::of(exec);
    const auto in = detail::operand_of<space>(full);
    const auto out = detail::operand_of<space>(result);
    const auto& ranks = comm.topology();
    const auto whole = in.over_ranks(ranks);
    const int chunks =
        detail::chunks_for(options.chunks, ranks, detail::whole_wire_bytes<Across>(whole), detail::overlaps_hops(on));

    // What was lost of a sum that everybody makes has no place to be kept.
    constexpr bool feeds_back = !std::same_as<std::remove_cvref_t<Memory>, no_error_feedback>;
    if constexpr (feeds_back) {
        static_assert(std::remove_cvref_t<Memory>::template is_for<Inside, Across, Back>,
                      "error feedback must be for the same quantizers, that of the way back included");
    }
    const all_reduce_route route =
        feeds_back && options.route == all_reduce_route::by_size ? all_reduce_route::scatter : options.route;

    const auto run = [&](const view<std::byte, space>& work) {
        const detail::all_reduce_plan<Inside, Across, Back, std::remove_const_t<decltype(whole)>> plan(ranks, whole,
                                                                                                       route, chunks);
        const bool gathers = plan.route == all_reduce_route::gather;
        std::string problem = chunks_problem(options.chunks);
        if (problem.empty()) problem = in.whole_problem(ranks);
        if (problem.empty()) problem = out.same_problem(in, ranks);
        if (problem.empty() && out.overlaps_partly(in)) {
            problem = "expected a result that is full or apart from it, given one that overlaps it elsewhere";
        }
        if (problem.empty()) problem = workspace_problem(work, plan.workspace_bytes());
        if (problem.empty()) problem = memory.problem(whole, ranks);
        if (problem.empty() && gathers && feeds_back) {
            problem = "expected the route `scatter` for error feedback, given `gather`";
        }
        agreed_text agreed = whole.text();
        detail::add_agreed(agreed, gathers ? options.text() : options.text(chunks));
        detail::add_agreed(agreed, memory.text());
        agreed_text quantizers = short_text(inside.name());
        quantizers.append(" + ").append(short_text(across.name())).append(" + ").append(short_text(back.name()));
        begin_collective(comm.world(),
                         {"quantized_all_reduce", whole.elements(), element_traits<T>::name, quantizers, agreed},
                         problem);

        const float divisor = options.operation == reduction::mean ? static_cast<float>(ranks.size()) : 1.0f;
        if (whole.elements() == 0) {
            memory.advance();
        } else if (!gathers) {
            detail::scatter_and_gather(on, comm, inside, across, back, plan, out.over_ranks(ranks), in.tensor(),
                                       out.tensor(), divisor, work.data(), memory);
            memory.advance();
        } else if (plan.reduce.hop_inside) {
            detail::gather_and_sum(on, comm, inside, whole, out.over_ranks(ranks), in.tensor(), out.tensor(), divisor,
                                   work.data());
        } else {
            detail::gather_and_sum(on, comm, across, whole, out.over_ranks(ranks), in.tensor(), out.tensor(), divisor,
                                   work.data());
        }
    };
    detail::with_scratch(
        on, comm.world(), scratch,
        [&] { return detail::all_reduce_workspace<Inside, Across, Back>(ranks, whole, options); }, run);
}

}  // namespace zeropp
