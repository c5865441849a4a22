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

}  // namespace zeropp
