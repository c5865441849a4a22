#pragma once
/// \file
/// A host transport that is chosen at run time.

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/transport/any.hpp>

namespace zeropp_bench {

using any_host_transport = zeropp::any_transport<zeropp::host, zeropp::host_queue>;

}  // namespace zeropp_bench
