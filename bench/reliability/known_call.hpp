#pragma once
/// \file
/// Calls of collectives with results that every rank knows beforehand.

#include "support/any_transport.hpp"

#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zeropp_reliability {

using zeropp_bench::any_host_transport;
using comm_type = zeropp::communicator<zeropp::two_level, any_host_transport>;

/// One call of a collective. Inputs are a function of `seed`, so that every rank knows all ranks' inputs.
struct known_call {
    enum class collective {
        quantized_all_gather,
        hierarchical_quantized_reduce_scatter,
        secondary_partition_gather,
        quantized_all_reduce  // of a list of two tensors, in place; the all-gather phase has the quantizer `inter_node`
    };

    collective what = collective::quantized_all_gather;
    std::size_t elements = 0;
    bool bfloat16 = false;
    /// Quantizers of a reduction's two hops; gathers use `intra_node`.
    std::string intra_node = "int8:256";
    std::string inter_node = "int8:256";
    int chunks = 1;
    bool mean = false;
    std::uint64_t seed = 0;

    /// The call in words, without `seed`.
    std::string text() const;
};

/// Quantizers that `intra_node` may name. `inter_node` of a reduction must be equal, or int4:128:signed:bf16 after
/// int8:256.
const std::vector<std::string>& known_quantizers();

/// A call with its inputs, buffers and expected result, from the tests' reference. The reference shares no code with
/// the library. Collective; may run repeatedly. Returns the difference, empty if every bit is equal.
using prepared_call = std::function<std::string(comm_type&)>;

/// Throws precondition_error for unknown quantizers or pairs.
prepared_call prepare(const known_call& call, const zeropp::two_level& nodes, int rank);

}  // namespace zeropp_reliability
