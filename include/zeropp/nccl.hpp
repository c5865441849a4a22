#pragma once
/// \file
/// NCCL as a transport. Link `zeropp::nccl`. Kernels are in zeropp/cuda.cuh.

#include <zeropp/execution/cuda_workspace.hpp>
#include <zeropp/transport/nccl.hpp>
#include <zeropp/zeropp.hpp>
