#pragma once
/// \file
/// A transport that makes one fault, in an operation that the test chooses.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/operation.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace zeropp_test {

/// Kinds of faults of an operation.
enum class fault {
    none,
    drop,       ///< not carried; its rank throws injected_fault, as if it had died
    delay,      ///< carried later
    truncate,   ///< carried with half of the bytes
    flip_bit,   ///< carried with one bit of this rank's bytes changed
    lie,        ///< carried with ones in place of this rank's first eight bytes
    duplicate,  ///< carried twice
};

/// The faulty operation, its rank and its fault.
struct planned_fault {
    fault what = fault::none;
    /// Rank in the wrapped transport, also for operations of splits.
    int rank = 0;
    /// Number of the operation, from 0. Operations of splits count; splitting does not.
    int operation = 0;
    std::chrono::milliseconds delay{0};
};

/// Thrown by the rank that drops an operation.
class injected_fault : public zeropp::error {
public:
    using error::error;
};

/// Forwards everything to `Transport` except for the planned fault. Deterministic. Copies and splits share the plan.
template <class Transport>
class fault_injecting : public zeropp::adaptor<fault_injecting<Transport>, Transport> {
    using base = zeropp::adaptor<fault_injecting, Transport>;

public:
    fault_injecting(Transport inner, const planned_fault& plan)
        : base(std::move(inner)), shared_(std::make_shared<state>(plan)) {
        if (this->rank() != plan.rank) shared_->plan.what = fault::none;
    }

    template <zeropp::host_execution E>
    void move(const E& exec, zeropp::operation what, const std::byte* send, std::byte* recv) {
        const bool now = shared_->operations++ == shared_->plan.operation;
        switch (now ? shared_->plan.what : fault::none) {
        case fault::none:
            break;
        case fault::drop:
            throw injected_fault("rank " + std::to_string(this->rank()) + " drops an operation");
        case fault::delay:
            exec.enqueue([delay = shared_->plan.delay] { std::this_thread::sleep_for(delay); });
            break;
        case fault::truncate:
            what.bytes /= 2;
            break;
        case fault::flip_bit:
        case fault::lie: {
            const int messages = what.kind == zeropp::operation::all_to_all ? this->size() : 1;
            const std::size_t sent =
                what.sends(this->rank()) ? static_cast<std::size_t>(messages) * what.bytes : std::size_t{0};
            // Sized before the copy is enqueued: its address is needed now, and a queue may copy at any time.
            shared_->flipped.resize(sent);
            exec.enqueue([s = shared_, send, sent] {
                std::copy_n(send, sent, s->flipped.begin());
                if (s->plan.what == fault::lie) {
                    std::fill_n(s->flipped.begin(), std::min(sent, std::size_t{8}), std::byte{0xff});
                } else if (sent != 0) {
                    s->flipped[sent / 2] ^= std::byte{0x10};
                }
            });
            send = shared_->flipped.data();
            break;
        }
        case fault::duplicate:
            base::move(exec, what, send, recv);
            break;
        }
        base::move(exec, what, send, recv);
    }

    fault_injecting around(Transport next, std::span<const int>) const { return {std::move(next), shared_}; }

private:
    struct state {
        explicit state(const planned_fault& p) : plan(p) {}

        planned_fault plan;
        int operations = 0;
        std::vector<std::byte> flipped;  // sent in place of the caller's bytes
    };

    fault_injecting(Transport inner, std::shared_ptr<state> shared)
        : base(std::move(inner)), shared_(std::move(shared)) {}

    std::shared_ptr<state> shared_;
};

}  // namespace zeropp_test
