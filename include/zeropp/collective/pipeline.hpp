#pragma once
/// \file
/// What collectives need to overlap their hops: two executions.

#include <zeropp/execution/execution.hpp>

namespace zeropp {

/// Two executions of the same kind that run the hops of a collective side by side: while one chunk crosses nodes on
/// `across`, another moves inside the node on `inside`. Refers to them.
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

/// Whether hops can overlap.
template <execution E>
bool overlaps_hops(const pipeline<E>& exec) {
    return &exec.inside != &exec.across;
}

/// Later work of each execution starts after what the other one holds. `across` waits first: a CUDA graph that captures
/// `inside` so takes it in, before anything is recorded there.
template <execution E>
void join(const pipeline<E>& exec) {
    exec.across.wait(exec.inside.record());
    exec.inside.wait(exec.across.record());
}

}  // namespace detail

/// What a collective runs on: an execution, on which its hops run one after the other, or a pipeline of two.
template <class E>
concept executes = requires {
    typename detail::pipeline_traits<E>::execution_type;
};

/// The memory that it works in.
template <executes E>
using space_of = typename detail::pipeline_traits<E>::execution_type::space;

}  // namespace zeropp
