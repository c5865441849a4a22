#pragma once
/// \file
/// Two or three executions, on which a collective overlaps its hops.

#include <zeropp/execution/execution.hpp>

#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>

namespace zeropp {

/// Executions of one type that run the hops of a collective side by side. While one chunk crosses nodes on
/// `inter_node`, another moves within the node on `intra_node`. With three levels, `inter_node` crosses sites, and
/// `intra_node` moves within the site. `quantized_all_gather` decodes on `decode`, which is `intra_node` unless it is
/// given; the other collectives use `intra_node`. Refers to the executions.
template <execution Execution>
struct pipeline {
    /// The type of all executions.
    using execution_type = Execution;

    /// Two executions, so that hops overlap.
    constexpr pipeline(const Execution& intra, const Execution& inter) : pipeline(intra, inter, intra) {}
    /// Three executions, so that the hop within the node and decoding overlap too.
    constexpr pipeline(const Execution& intra, const Execution& inter, const Execution& decoder)
        : intra_node(intra), inter_node(inter), decode(decoder) {}
    /// One execution in both places, so that hops run one after the other.
    constexpr explicit pipeline(const Execution& both) : pipeline(both, both) {}
    // Deleted for temporaries, which would end before the pipeline that refers to them.
    template <class... E>
        requires(std::same_as<std::remove_cvref_t<E>, Execution> && ...) && (std::is_rvalue_reference_v<E&&> || ...)
    explicit pipeline(E&&...) = delete;

    const Execution& intra_node;
    const Execution& inter_node;
    const Execution& decode;
};

namespace detail {

template <execution E>
bool overlaps_hops(const pipeline<E>& exec) {
    return &exec.intra_node != &exec.inter_node;
}

/// Makes all work that is enqueued on `later` from now on start after the work that `earlier` has now. Does nothing,
/// and records no event, if both are one execution.
template <execution E>
void start_after(const E& later, const E& earlier) {
    if (&later != &earlier) later.wait(earlier.record());
}

/// Type of an event on a pipeline's `inter_node`, after which `intra_node` starts. Empty if both are one execution, or
/// if there is nothing to wait for.
template <execution E>
using crossed_work = std::optional<typename E::event>;

/// Event after the work that `inter_node` has now; empty if both executions are one.
template <execution E>
crossed_work<E> crossed(const pipeline<E>& exec) {
    if (!overlaps_hops(exec)) return {};
    return exec.inter_node.record();
}
/// Makes all work that is enqueued on `intra_node` from now on start after the event `earlier`, if it is not empty.
template <execution E>
void start_after(const pipeline<E>& exec, const crossed_work<E>& earlier) {
    if (earlier) exec.intra_node.wait(*earlier);
}

/// Makes later work of each execution start after the work that the other execution has now. `inter_node` waits first:
/// so a CUDA graph that captures `intra_node` also captures `inter_node`, before an event is recorded on `inter_node`.
template <execution E>
void join(const pipeline<E>& exec) {
    start_after(exec.inter_node, exec.intra_node);
    start_after(exec.intra_node, exec.inter_node);
}

}  // namespace detail

/// The execution argument of a collective: an execution, on which hops run one after the other, or a pipeline.
template <class E>
concept execution_or_pipeline = requires(const E& exec) { pipeline(exec); };

/// Memory space of an execution or a pipeline.
template <execution_or_pipeline E>
using space_of = typename decltype(pipeline(std::declval<const E&>()))::execution_type::space;

}  // namespace zeropp
