#pragma once

#include "trainer.hpp"

#include <zeropp/execution/host_queue.hpp>
#include <zeropp/transport/any.hpp>

namespace zero3_gpt {

/// train_all on the host, compiled once for all transports. Collective.
std::vector<run_result> train_on_host(const settings& s, const workload& work,
                                      zeropp::any_transport<zeropp::host_queue> world,
                                      const zeropp::three_level& nodes);

/// train_on_host with ranks that are threads.
std::vector<run_result> train_on_host_threads(const settings& s, const workload& work,
                                              const zeropp::three_level& nodes);

}  // namespace zero3_gpt
