#pragma once
/// \file
/// Two executions, on which a collective overlaps its hops.

#include <zeropp/execution/execution.hpp>

namespace zeropp {

/// Two executions of one type that run the hops of a collective side by side. While one chunk crosses nodes on
/// `across`, another moves within the node on `inside`. Refers to both.
template <execution Execution>
struct pipeline {
    const Execution& inside;
    const Execution& across;
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
    return &exec.inside != &exec.across;
}

/// Makes later work of each execution start after the work that the other has now. `across` waits first: a CUDA graph
/// that captures `inside` then also captures `across`, before anything is recorded there.
template <execution E>
void join(const pipeline<E>& exec) {
    exec.across.wait(exec.inside.record());
    exec.inside.wait(exec.across.record());
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
