#pragma once
/// \file
/// A transport with a peer that sends arbitrary bytes.

#include <zeropp/execution/execution.hpp>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace zeropp_test {

/// Rank 0 of two. In every operation the other rank sends `bytes`, repeated to the operation's length. The first
/// operation begins with the first byte, and each later one `step` bytes behind the one before.
struct hostile_peer {
    std::vector<std::byte> bytes;
    std::size_t step = 0;
    std::size_t first = 0;

    int rank() const { return 0; }
    int size() const { return 2; }

    template <zeropp::host_execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t n) {
        exec.enqueue([=, this] {
            if (send != recv) std::memmove(recv, send, n);
            for (std::size_t i = 0; i != n; ++i) recv[n + i] = bytes[(first + i) % bytes.size()];
            first += step;
        });
    }
    template <zeropp::host_execution E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t n) {
        all_gather(exec, send, recv, n);
    }
    hostile_peer split(std::span<const int>) { return *this; }
};

}  // namespace zeropp_test
