#pragma once
/// \file
/// The library on GPU memory. Include it in .cu files and link `zeropp::cuda`.

#include <zeropp/codec/cuda.cuh>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/execution/cuda_workspace.hpp>
#include <zeropp/zeropp.hpp>
