#pragma once
/// \file
/// What chunks need.

#include <zeropp/collective/pipeline.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>

#include <memory>

namespace zeropp_bench {

/// An execution for each hop.
struct queues {
    zeropp::host_queue inside;
    zeropp::host_queue across;
};

/// Two queues where there are chunks to overlap; null where there are none.
inline std::shared_ptr<queues> queues_for(int chunks) { return chunks > 1 ? std::make_shared<queues>() : nullptr; }

/// Runs collective(pipeline) to its end: on the queues or, where there are none, at once.
template <class Collective>
void run_pipelined(const std::shared_ptr<queues>& executions, Collective collective) {
    if (executions) {
        collective(zeropp::pipeline<zeropp::host_queue>{executions->inside, executions->across});
        executions->inside.wait();
    } else {
        const zeropp::host at_once;
        collective(zeropp::pipeline<zeropp::host>{at_once, at_once});
    }
}

}  // namespace zeropp_bench
