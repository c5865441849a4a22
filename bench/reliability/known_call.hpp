#pragma once
/// \file
/// Calls of collectives whose results every rank knows beforehand.

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

/// One call of a collective. Inputs are a function of `seed`, so that every rank knows what the others contribute.
struct known_call {
    enum class collective {
        quantized_all_gather,
        hierarchical_quantized_reduce_scatter,
        secondary_partition_gather,
        quantized_all_reduce  // of a list of two tensors, in place, with the quantizer across on its way back
    };

    collective what = collective::quantized_all_gather;
    std::size_t elements = 0;
    bool bfloat16 = false;
    /// Those of the two hops of a reduction; the others use the first.
    std::string inside = "int8:256";
    std::string across = "int8:256";
    int chunks = 1;
    bool mean = false;
    std::uint64_t seed = 0;

    /// All of it in words.
    std::string text() const;
};

/// The quantizers that `inside` may name; a reduce-scatter has the same one across, or int8:256 and then INT4.
const std::vector<std::string>& known_quantizers();

/// A call with its inputs, buffers and the result that the tests' reference expects, which shares no code with the
/// library. Collective to run, as often as one likes. Returns how the result differs, to the bit; empty where it does
/// not.
using prepared_call = std::function<std::string(comm_type&)>;

/// Throws precondition_error where a quantizer is not among the known ones.
prepared_call prepare(const known_call& call, const zeropp::two_level& nodes, int rank);

}  // namespace zeropp_reliability
