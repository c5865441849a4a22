#pragma once
/// \file
/// A transport on the emulated device without anybody else, and two streams to use it on.

#include "simt/device.hpp"

#include <zeropp/collective/pipeline.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <span>

namespace zeropp_test::simt {

/// One rank of two that hears itself in place of the other one.
class echoing_transport {
public:
    int rank() const { return 0; }
    int size() const { return 2; }
    void all_gather(const zeropp::cuda_stream& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        if (refuses) throw zeropp::error("refused");
        for (std::size_t r = 0; r != 2; ++r) {
            if (recv + r * bytes != send) exec.copy(recv + r * bytes, send, bytes);
        }
    }
    void all_to_all(const zeropp::cuda_stream& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        exec.copy(recv, send, 2 * bytes);
    }
    echoing_transport split(std::span<const int>) { return *this; }

    bool refuses = false;
};

/// What a collective on two streams runs on: as one of two ranks, of a node or of two.
struct two_streams {
    owned_stream intra_node;
    owned_stream inter_node;
    zeropp::pipeline<zeropp::cuda_stream> exec{intra_node.exec(), inter_node.exec()};
    zeropp::communicator<zeropp::two_level, echoing_transport> comm;

    explicit two_streams(bool two_nodes)
        : comm(two_nodes ? zeropp::two_level(2, 1) : zeropp::two_level(1, 2), echoing_transport()) {}
};

}  // namespace zeropp_test::simt
