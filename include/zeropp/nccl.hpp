#pragma once
/// \file
/// The library with NCCL. Link `zeropp::nccl`. GPU kernels are in zeropp/cuda.cuh.

#include <zeropp/execution/cuda_workspace.hpp>
#include <zeropp/transport/nccl.hpp>
#include <zeropp/zeropp.hpp>
