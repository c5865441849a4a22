#pragma once
/// \file
/// The messages of a bare exchange, for any means to move them.

#include "support/ranks.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace zeropp_bench {

/// One rank's messages of all hops. They move at once: no hop waits for an earlier one.
class bare_messages {
public:
    struct message {
        int to;
        int from;
        std::size_t send_offset;
        std::size_t receive_offset;
        std::size_t bytes;
    };

    bare_messages(int rank, const route& hops) {
        for (const hop& h : hops) {
            // Ranks start with different peers, so that no receiver is the first of all.
            const std::size_t ranks = h.members.size();
            const auto self = static_cast<std::size_t>(std::ranges::find(h.members, rank) - h.members.begin());
            for (std::size_t i = 1; i < ranks; ++i) {
                // A gather sends the same bytes to all peers.
                if (h.what == hop::pattern::all_gather && i > 1) send_bytes_ -= h.bytes;
                all_.push_back({h.members[(self + i) % ranks], h.members[(self + ranks - i) % ranks], send_bytes_,
                                receive_bytes_, h.bytes});
                send_bytes_ += h.bytes;
                receive_bytes_ += h.bytes;
            }
        }
    }

    const std::vector<message>& all() const { return all_; }
    /// Sizes of the send and receive buffers, in bytes.
    std::size_t send_bytes() const { return send_bytes_; }
    std::size_t receive_bytes() const { return receive_bytes_; }

private:
    std::vector<message> all_;
    std::size_t send_bytes_ = 0;
    std::size_t receive_bytes_ = 0;
};

}  // namespace zeropp_bench
