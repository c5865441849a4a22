#pragma once
/// \file
/// The library on host memory. Needs neither MPI nor CUDA: zeropp/mpi.hpp, nccl.hpp, cuda.cuh and checksummed.hpp are
/// opt-in. So are plan.hpp, local_steps.hpp and elastic.hpp, which few programs need.
///
/// Folders of zeropp/:
///   collective/  the primitives, one header each, and the arguments of their calls
///   quantizer/   formats of messages, and additions to them; named chooses a quantizer by text
///   topology/    nodes of the ranks: flat, two_level, three_level, shard_owners; columns lists ranks for `split`
///   layout/      partition of tensors over ranks, tensor_list, and wire_layout of messages
///   transport/   transports, decorators around them, and the communicator, a transport with a topology
///   execution/   host, host_threads, host_queue, cuda_stream
///   core/        views, workspaces, errors and element types

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/collective/quantized_all_to_all.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>
#include <zeropp/quantizer/named.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/quantizer/stochastic.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/three_level.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/counting.hpp>
#include <zeropp/transport/threads.hpp>
#include <zeropp/version.hpp>
