#pragma once
/// \file
/// The part that all collectives share: checks of arguments, agreement of the ranks, and scratch memory.

#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/scratch.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace zeropp::detail {

/// One call of a collective on this rank. Collects the first problem of its arguments and the terms that all ranks must
/// share, and compares both with the other ranks before any message.
class prologue {
public:
    /// For tensors of `elements` elements in all, of the type that `element` names.
    prologue(std::string_view primitive, std::size_t elements, std::string_view element)
        : call_{primitive, elements, element, {}, {}} {}

    /// Adds the names of quantizers, joined by `separator`.
    template <quantizer... Quantizers>
    void quantize_with(std::string_view separator, const Quantizers&... quantizers) {
        const auto add = [&](const auto& q) {
            if (call_.quantizer != agreed_text()) call_.quantizer.append(separator);
            call_.quantizer.append(short_text(q.name()));
        };
        (add(quantizers), ...);
    }

    /// Adds `words` that must be the same on all ranks. Empty words add nothing.
    void agree(const agreed_text& words) {
        if (words == agreed_text()) return;
        if (call_.options != agreed_text()) call_.options.append(", ");
        call_.options.append(words);
    }

    /// Keeps `problem()`, a text "expected ..., given ..." or empty. Does not call it if there is a problem already, so
    /// a check may rely on those before it.
    template <class Problem>
    void require(Problem problem) {
        if (problem_.empty()) problem_ = problem();
    }

    /// Requires a number of chunks that exists.
    void require_chunks(int wanted) {
        require([&] { return chunks_problem(wanted); });
    }

    /// Compares the call with the other ranks of `transport`. Throws precondition_error if this rank has a problem, or
    /// another rank that the transport compares with.
    template <class Transport>
    void begin(Transport& transport) const {
        begin_collective(transport, call_, problem_);
    }
    /// The same for a rank that exchanges no messages with others.
    void begin_alone() const { require_no_problem(call_, problem_); }

    /// Begins on `transport`, and enqueues the messages with move(memory). The memory is `scratch`, which must have
    /// `bytes` bytes, or a workspace of `most_bytes()` bytes.
    template <execution Execution, class Transport, class Scratch, class Most, class Move>
    void run(const pipeline<Execution>& exec, Transport& transport, Scratch&& scratch, Most most_bytes,
             std::size_t bytes, Move move) {
        with_scratch(exec, transport, std::forward<Scratch>(scratch), most_bytes,
                     [&](const view<std::byte, typename Execution::space>& work) {
                         require([&] { return workspace_problem(work, bytes); });
                         begin(transport);
                         move(work.data());
                     });
    }

private:
    collective_call call_;
    std::string problem_;
};

}  // namespace zeropp::detail
