#pragma once
/// \file
/// The part that all collectives share: checks of arguments, agreement of the ranks, and scratch memory.

#include <zeropp/collective/pipeline.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/quantizer/hops.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace zeropp {

/// Scratch argument of a call in `Space`: memory, a memory resource, or `none`. A device_memory_resource allocates and
/// frees in the stream's order, so that the call does not block. With other resources, and with `none`, the call blocks
/// until its work is complete.
template <class R, class Space>
concept scratch_in = mutable_array_in<R, Space> || allocates_in<std::remove_reference_t<R>, Space> ||
                     std::same_as<std::remove_cvref_t<R>, none>;

namespace detail {

/// True if a call with scratch of type R in `Space` blocks until its work is complete.
template <class R, class Space>
inline constexpr bool blocks_with =
    std::same_as<std::remove_cvref_t<R>, none> ||
    (std::same_as<Space, host_space> && allocates_in<std::remove_reference_t<R>, host_space>);

/// Runs enqueue(). If enqueue() throws, blocks until the work of all executions, with operations of `transport`, is
/// complete. Until then, work uses memory that is freed next. Then throws the exception again.
template <execution Execution, class Transport, class Enqueue>
void complete_on_error(const pipeline<Execution>& exec, Transport& transport, Enqueue enqueue) {
    try {
        enqueue();
    } catch (...) {
        // Swallows later errors, so that the first one is reported. The transport ends its operations first, because
        // operations may not end by themselves.
        const auto quietly = [](auto wait) {
            try {
                wait();
            } catch (...) {
            }
        };
        const auto end = [&](const Execution& e) {
            quietly([&] { wait_for(transport, e); });
            quietly([&] { e.wait(); });
        };
        end(exec.intra_node);
        if (overlaps_hops(exec)) end(exec.inter_node);
        if (&exec.decode != &exec.intra_node) end(exec.decode);
        throw;
    }
}

/// Runs enqueue(), and blocks until `intra_node` has completed and, with it, all work of the call.
template <execution Execution, class Transport, class Enqueue>
void run_to_completion(const pipeline<Execution>& exec, Transport& transport, Enqueue enqueue) {
    complete_on_error(exec, transport, [&] {
        enqueue();
        wait_for(transport, exec.intra_node);
    });
}

/// One call of a collective on this rank. Collects the first problem of the arguments, and the terms on which all ranks
/// must agree. Before any message, a transport such as `checked` compares problem and terms with other ranks.
class prologue {
public:
    /// A call of the collective with the name `primitive`, on tensors of `elements` elements in all, over the topology
    /// `ranks`. `element` is the name of the element type.
    template <topology Topology>
    prologue(std::string_view primitive, std::size_t elements, std::string_view element, const Topology& ranks)
        : call_{primitive, elements, element, {}, {}, topology_digest(ranks)} {}

    /// Adds the name of a format to the terms, after `separator` if other names precede it.
    template <difference_format Q>
    void quantize_with(const Q& q, std::string_view separator = " + ") {
        if (call_.quantizer != agreed_text()) call_.quantizer.append(separator);
        call_.quantizer.append(short_text(q.name()));
    }
    /// Adds the names of all quantizers of `by_level` to the terms.
    template <quantizer... Quantizers>
    void quantize_with(const hops<Quantizers...>& by_level) {
        by_level.for_each([&](const auto& q) { quantize_with(q); });
    }

    /// Adds `words` that must be equal on all ranks. Empty words add nothing.
    void agree(const agreed_text& words) {
        if (words == agreed_text()) return;
        if (call_.options != agreed_text()) call_.options.append(", ");
        call_.options.append(words);
    }

    /// Calls problem(), and keeps the text that it returns: "expected ..., given ...", or an empty one. Does not call
    /// `problem` after another problem, so a check may rely on the checks before.
    template <class Problem>
    void require(Problem problem) {
        if (problem_.empty()) problem_ = problem();
    }

    /// Requires a number of chunks above 0, or `auto_chunks`.
    void require_chunks(int wanted) {
        require([&] { return chunks_problem(wanted); });
    }

    /// Makes `begin` compare nothing with other ranks, because this rank exchanges no messages.
    void exchange_nothing() { alone_ = true; }

    /// Begins the call on `transport`, which may compare it with other ranks' calls (`checked`). Throws
    /// precondition_error if this rank has a problem, or a rank that the transport compares with.
    template <class Transport>
    void begin(Transport& transport) const {
        if (alone_) return require_no_problem(call_, problem_);
        begin_collective(transport, call_, problem_);
    }

    /// Begins the call on `transport`, and enqueues the call's work by move(memory). The memory is `scratch`, which
    /// must have `bytes` bytes and be aligned to 16 bytes. Otherwise, it is a workspace that lasts until all work of
    /// the call has completed.
    template <execution Execution, class Transport, class Scratch, class Move>
    void run(const pipeline<Execution>& exec, Transport& transport, Scratch&& scratch, std::size_t bytes, Move move) {
        using space = typename Execution::space;
        using given = std::remove_reference_t<Scratch>;
        const auto enqueue = [&](const view<std::byte, space>& work) {
            require([&] { return workspace_problem(work, bytes); });
            begin(transport);
            move(work.data());
        };
        const auto block = [&](workspace<space> own) {
            run_to_completion(exec, transport, [&] { enqueue(own.view()); });
        };
        if constexpr (std::same_as<std::remove_const_t<given>, none>) {
            block(workspace<space>(bytes));
        } else if constexpr (blocks_with<Scratch, space>) {
            block(workspace<space>(bytes, scratch));
        } else if constexpr (allocates_in<given, space>) {
            workspace<space> own(bytes, exec.intra_node, scratch);
            if (overlaps_hops(exec)) join(exec);
            complete_on_error(exec, transport, [&] { enqueue(own.view()); });
        } else {
            enqueue(as_view<space>(scratch));
        }
    }

private:
    collective_call call_;
    std::string problem_;
    bool alone_ = false;
};

}  // namespace detail

}  // namespace zeropp
