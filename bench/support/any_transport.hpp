#pragma once
/// \file
/// The transport of programs that are told where to run.

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/transport/any.hpp>

namespace zeropp_bench {

using any_host_transport = zeropp::any_transport<zeropp::host, zeropp::host_queue>;

}  // namespace zeropp_bench
