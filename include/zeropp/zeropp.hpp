#pragma once
/// \file
/// The library on host memory: primitives, quantizers, topologies, executions, the thread transport and plans. Needs
/// neither MPI nor CUDA; zeropp/mpi.hpp, nccl.hpp, cuda.cuh and checksummed.hpp are opt-in.
///
/// Folders of zeropp/:
///   collective/  one header for each primitive, with its size function: quantized_all_gather (qwZ),
///                hierarchical_quantized_reduce_scatter (qgZ), secondary_partition_gather (hpZ), quantized_all_reduce,
///                quantized_update;
///                arguments of calls: options, error_feedback, scratch, pipeline
///   quantizer/   block_integer, block_float, spike_reserving, lloyd_max, cast_to; around another one: hadamard,
///                stochastic, scale_search; named (by text), residual_storage
///   topology/    two_level, flat; shard_owners (if some nodes own no shards)
///   layout/      partition (which rank owns which elements), tensor_list, wire_layout (bytes of a message)
///   transport/   threads, mpi, nccl, callback, any; around another one: checked, counting, checksummed, staged;
///                adaptor and wire, for your own transports; communicator, which joins a transport to a topology
///   execution/   host, host_threads, host_queue, cuda_stream
///   plan/        volume, memory and time before anything runs
///   core/        view and workspace (memory), error, element (half, bfloat16)

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/time.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>
#include <zeropp/quantizer/named.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/quantizer/scale_search.hpp>
#include <zeropp/quantizer/spike_reserving.hpp>
#include <zeropp/quantizer/stochastic.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/counting.hpp>
#include <zeropp/transport/threads.hpp>
#include <zeropp/version.hpp>
