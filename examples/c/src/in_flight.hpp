#pragma once

#include <zeropp/execution/execution.hpp>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace zeropp_c {

/// Keeps memory until the enqueued work that uses it is complete. Orders calls on several streams that share it.
template <zeropp::execution E>
class in_flight {
public:
    in_flight() = default;
    in_flight(const in_flight&) = delete;
    in_flight& operator=(const in_flight&) = delete;
    /// Blocks until all work is complete.
    ~in_flight() {
        if constexpr (asynchronous) {
            for (const call& c : calls_) {
                try {
                    c.done.wait();
                } catch (...) {  // A failed device runs no more work.
                }
            }
        }
    }

    /// Has `exec` wait for earlier calls, and releases the memory of complete ones. Does not block.
    void begin(const E& exec) {
        if constexpr (asynchronous) {
            if (!calls_.empty()) exec.wait(calls_.back().done);
            while (!calls_.empty() && calls_.front().done.is_complete()) calls_.pop_front();
        }
    }

    /// Keeps `used` until the work enqueued before end() is complete.
    void keep(std::shared_ptr<const void> used) { used_.push_back(std::move(used)); }

    void end(const E& exec) {
        if constexpr (asynchronous) calls_.push_back({exec.record(), std::exchange(used_, {})});
        used_.clear();
    }

private:
    static constexpr bool asynchronous = requires(const typename E::event& e) { e.is_complete(); };

    struct call {
        typename E::event done;
        std::vector<std::shared_ptr<const void>> used;
    };

    std::deque<call> calls_;
    std::vector<std::shared_ptr<const void>> used_;
};

}  // namespace zeropp_c
