#pragma once
/// \file
/// The network behind the test doubles of NCCL (nccl_doubles.cpp): what tests set and ask of it.
///
/// Ranks are threads of one process. A call is work on a stream of the doubled CUDA runtime: it returns at once, and
/// what it receives is there when its stream has come to it, which needs all ranks' calls and what their streams hold
/// before them. It is there no sooner: each rank's memory is written when somebody waits for that rank's own stream.
///
/// What would be a hang or wrong data with NCCL is a fault of the device (device_fault()): calls of other kinds or
/// sizes on other ranks, a send that nobody receives, a communicator used after its end, waiting for a rank that has
/// left. Stricter than NCCL in one thing: a group of sends and receives is a call of all ranks of its communicator.

#include "simt/cuda_doubles.hpp"

#include <nccl.h>

#include <cstddef>
#include <string>

namespace zeropp_test::simt {

/// Communicators that were neither destroyed nor aborted.
std::size_t live_communicators();

/// The next call of this entry point ("ncclAllGather") does nothing and returns `code`.
void fail_next(const std::string& entry_point, ncclResult_t code);

/// The next call of this entry point returns ncclInProgress, as all do on communicators that do not block, and
/// ncclCommGetAsyncError says so twice and then `outcome`. Unless that is ncclSuccess, the call does nothing.
void settle_later(const std::string& entry_point, ncclResult_t outcome);

/// NCCL notices an error on the communicator, whose calls under way will never end.
void notice(ncclComm_t comm, ncclResult_t code);

/// While there is one, a call that waits for ever is no fault: it waits until its communicator is aborted, as on a GPU.
class hanging_calls {
public:
    hanging_calls();
    ~hanging_calls();
    hanging_calls(const hanging_calls&) = delete;
    hanging_calls& operator=(const hanging_calls&) = delete;
};

}  // namespace zeropp_test::simt
