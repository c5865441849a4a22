#pragma once
/// \file
/// Every collective once, as a training step calls them: in memory that is made once and used again in each step.

#include "collective/ranks.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/local_steps/outer_step.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/residual_storage.hpp>

namespace collective_test {

/// One rank's tensors and workspaces, and the collectives on them.
template <class Communicator>
class repeated_step {
public:
    static constexpr std::size_t elements = 3001;

    explicit repeated_step(Communicator& comm)
        : comm_(comm), full_(tensor_of(elements, reference::fp32, 1 + at(comm.rank()))), gathered_(elements),
          weights_(reference::slice_of(full_, at(comm.size()), at(comm.rank()))), gradients_(weights_.size()),
          gather_scratch_(
              zeropp::quantized_all_gather_workspace_bytes(comm.topology(), intra_node, elements, in_chunks)),
          reduce_scratch_(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
              comm.topology(), zeropp::hops{intra_node, inter_node}, elements, reduce)),
          secondary_scratch_(
              zeropp::secondary_partition_gather_workspace_bytes(comm.group_size(), intra_node, elements)),
          secondary_storage_(secondary_type::storage_bytes(intra_node, elements, comm.group_size())),
          residuals_(memory_type::storage_bytes(comm.topology(), elements)),
          secondary_(intra_node, elements, comm.group_size(), comm.index(), secondary_storage_.view()),
          memory_(comm.topology(), elements, residuals_.view()),
          list_(comm.topology(), {zeropp::host_view<float>(full_.data(), 1000),
                                  zeropp::host_view<float>(full_.data() + 1000, elements - 1000)}),
          all_reduce_scratch_(zeropp::quantized_all_reduce_workspace_bytes(
              comm.topology(), zeropp::hops{intra_node, inter_node, intra_node}, list_, all)),
          update_scratch_(
              zeropp::quantized_update_gather_workspace_bytes(comm.topology(), inter_node, exact, elements)),
          replica_storage_(replica_type::storage_bytes(comm.topology(), elements)),
          replica_(comm.topology(), comm.rank(), elements, replica_storage_.view()),
          outer_storage_(outer_type::storage_bytes(gathered_)),
          outer_(comm.topology(), gathered_, outer_storage_.view()),
          outer_scratch_(zeropp::outer_step_workspace_bytes(comm.topology(),
                                                            zeropp::hops{intra_node, inter_node, intra_node}, outer_)) {
        outer_.start(zeropp::host{}, gathered_);
        // An empty replica takes whole weights; the steps move differences.
        zeropp::quantized_update(zeropp::host{}, comm, inter_node, weights_, replica_.to(1));
    }

    /// Enqueues the step numbered `step`.
    template <class Execution>
    void enqueue(const zeropp::pipeline<Execution>& exec, std::uint64_t step) {
        const Execution& on = exec.intra_node;
        // Numbers that fill all digits of their type.
        const std::uint64_t version = ~std::uint64_t{0} - step;
        zeropp::quantized_all_gather(exec, comm_, intra_node, weights_, gathered_, in_chunks, gather_scratch_.view());
        zeropp::quantized_all_gather(on, comm_, intra_node, weights_, gathered_, {}, gather_scratch_.view());
        secondary_.store(on, gathered_, version);
        zeropp::secondary_partition_gather(on, comm_, secondary_, version, gathered_, secondary_scratch_.view());
        zeropp::quantized_update(exec, comm_, inter_node, weights_, replica_.to(step + 2, gathered_), {},
                                 update_scratch_.view());
        zeropp::hierarchical_quantized_reduce_scatter(exec, comm_, zeropp::hops{intra_node, inter_node}, full_,
                                                      gradients_, reduce, reduce_scratch_.view());
        zeropp::hierarchical_quantized_reduce_scatter(
            exec, comm_, zeropp::with_error_feedback(zeropp::hops{intra_node, inter_node}, memory_), full_, gradients_,
            reduce, reduce_scratch_.view());
        zeropp::quantized_all_reduce(exec, comm_, zeropp::hops{intra_node, inter_node, intra_node}, list_, list_, all,
                                     all_reduce_scratch_.view());
        // Each rank as an island.
        zeropp::outer_step(exec, comm_, zeropp::hops{intra_node, inter_node, intra_node}, gathered_, outer_, {},
                           outer_scratch_.view());
    }

private:
    static constexpr zeropp::block_integer<8, 256> intra_node{};
    static constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> inter_node{};
    static constexpr zeropp::cast_to<float> exact{};
    static constexpr zeropp::gather_options in_chunks{.chunks = 2};
    static constexpr zeropp::reduce_options reduce{.operation = zeropp::reduction::mean, .chunks = 3};
    static constexpr zeropp::all_reduce_options all{
        .operation = zeropp::reduction::mean, .chunks = 3, .algorithm = zeropp::all_reduce_algorithm::two_shot};
    using secondary_type = zeropp::secondary_partition<zeropp::block_integer<8, 256>, zeropp::host_space>;
    using memory_type = zeropp::error_feedback<
        zeropp::hops<zeropp::block_integer<8, 256>, zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>>,
        zeropp::residuals_in_int8, zeropp::host_space>;
    using outer_type = zeropp::outer_optimizer<zeropp::host_space>;
    using replica_type = zeropp::secondary_replica<zeropp::cast_to<float>, zeropp::host_space>;

    Communicator& comm_;
    std::vector<float> full_, gathered_, weights_, gradients_;
    zeropp::workspace<zeropp::host_space> gather_scratch_, reduce_scratch_, secondary_scratch_, secondary_storage_,
        residuals_;
    secondary_type secondary_;
    memory_type memory_;
    zeropp::tensor_list<float> list_;
    zeropp::workspace<zeropp::host_space> all_reduce_scratch_, update_scratch_, replica_storage_;
    replica_type replica_;
    zeropp::workspace<zeropp::host_space> outer_storage_;
    outer_type outer_;
    zeropp::workspace<zeropp::host_space> outer_scratch_;
};

}  // namespace collective_test
