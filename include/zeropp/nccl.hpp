#pragma once
/// \file
/// The library with NCCL. Link `zeropp::nccl`. GPU kernels are in zeropp/cuda.cuh.

#include <zeropp/execution/cuda_workspace.hpp>
#include <zeropp/transport/nccl.hpp>
#include <zeropp/zeropp.hpp>

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
#include <zeropp/transport/nccl_workspace.hpp>
#endif
