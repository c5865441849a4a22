#pragma once

#include <zeropp/execution/execution.hpp>

#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace zeropp_c {

/// Keeps memory until the enqueued work that uses it is complete, and for ever if that is captured into a CUDA graph.
/// Orders calls on several streams that share it, unless they are captured.
template <zeropp::execution E>
class in_flight {
public:
    in_flight() = default;
    in_flight(const in_flight&) = delete;
    in_flight& operator=(const in_flight&) = delete;
    /// Blocks until all work is complete. Graphs are the caller's to end first.
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

    /// Has `exec` wait for earlier calls, and releases the memory of complete ones. Does not block. Returns true if
    /// `exec` is captured: there, work that is not part of the graph cannot be waited for.
    bool begin(const E& exec) {
        captured_ = false;
        if constexpr (asynchronous) {
            captured_ = exec.is_captured();
            if (captured_) return true;
            if (!calls_.empty() && calls_.back().on != exec.native()) exec.wait(calls_.back().done);
            while (!calls_.empty() && calls_.front().done.is_complete()) calls_.pop_front();
        }
        return false;
    }

    /// Keeps `used` until the work enqueued before end() is complete.
    void keep(std::shared_ptr<const void> used) { used_.push_back(std::move(used)); }

    void end(const E& exec) {
        if (captured_) {
            of_graphs_.insert(used_.begin(), used_.end());
        } else if constexpr (asynchronous) {
            calls_.push_back({exec.record(), exec.native(), std::exchange(used_, {})});
        }
        used_.clear();
    }

private:
    static constexpr bool asynchronous = requires(const typename E::event& e) { e.is_complete(); };

    struct call {
        typename E::event done;
        const void* on;
        std::vector<std::shared_ptr<const void>> used;
    };

    std::deque<call> calls_;
    std::vector<std::shared_ptr<const void>> used_;
    std::set<std::shared_ptr<const void>> of_graphs_;
    bool captured_ = false;
};

}  // namespace zeropp_c
