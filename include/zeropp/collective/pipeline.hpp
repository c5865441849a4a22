#pragma once
/// \file
/// Two executions, on which a collective overlaps its hops.

#include <zeropp/execution/execution.hpp>

namespace zeropp {

/// Two executions of one type that run the hops of a collective side by side. While one chunk crosses nodes on
/// `inter_node`, another moves within the node on `intra_node`. Refers to both.
template <execution Execution>
struct pipeline {
    const Execution& intra_node;
    const Execution& inter_node;
};

namespace detail {

template <class E>
struct pipeline_traits;
template <execution E>
struct pipeline_traits<E> {
    using execution_type = E;
    static pipeline<E> of(const E& exec) { return {exec, exec}; }
};
template <execution E>
struct pipeline_traits<pipeline<E>> {
    using execution_type = E;
    static const pipeline<E>& of(const pipeline<E>& exec) { return exec; }
};

/// True if hops can overlap.
template <execution E>
bool overlaps_hops(const pipeline<E>& exec) {
    return &exec.intra_node != &exec.inter_node;
}

/// Makes later work of each execution start after the work that the other has now. `inter_node` waits first: a CUDA
/// graph that captures `intra_node` then also captures `inter_node`, before anything is recorded there.
template <execution E>
void join(const pipeline<E>& exec) {
    exec.inter_node.wait(exec.intra_node.record());
    exec.intra_node.wait(exec.inter_node.record());
}

}  // namespace detail

/// The execution argument of a collective: an execution, on which hops run one after the other, or a pipeline.
template <class E>
concept execution_or_pipeline = requires {
    typename detail::pipeline_traits<E>::execution_type;
};

/// Memory space of an execution or a pipeline.
template <execution_or_pipeline E>
using space_of = typename detail::pipeline_traits<E>::execution_type::space;

}  // namespace zeropp
