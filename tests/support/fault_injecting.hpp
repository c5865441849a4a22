#pragma once
/// \file
/// A transport that makes one fault, in an operation that the test chooses.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/transport.hpp>

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
class fault_injecting : public zeropp::adaptor<Transport> {
public:
    fault_injecting(Transport inner, const planned_fault& plan)
        : zeropp::adaptor<Transport>(std::move(inner)), shared_(std::make_shared<state>(plan)) {
        if (this->rank() != plan.rank) shared_->plan.what = fault::none;
    }

    template <zeropp::host_execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        carry(exec, send, bytes, bytes,
              [&](const std::byte* from, std::size_t count) { this->inner().all_gather(exec, from, recv, count); });
    }

    template <zeropp::host_execution E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        const std::size_t all = static_cast<std::size_t>(this->size()) * bytes;
        carry(exec, send, all, bytes,
              [&](const std::byte* from, std::size_t count) { this->inner().all_to_all(exec, from, recv, count); });
    }

    template <zeropp::host_execution E>
    void broadcast(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes, int roots)
        requires zeropp::broadcasting_transport_on<Transport, E>
    {
        carry(exec, send, this->rank() < roots ? bytes : 0, bytes, [&](const std::byte* from, std::size_t count) {
            this->inner().broadcast(exec, from, recv, count, roots);
        });
    }

    fault_injecting split(std::span<const int> members) { return {this->inner().split(members), shared_}; }

private:
    struct state {
        explicit state(const planned_fault& p) : plan(p) {}

        planned_fault plan;
        int operations = 0;
        std::vector<std::byte> flipped;  // sent in place of the caller's bytes
    };

    fault_injecting(Transport inner, std::shared_ptr<state> shared)
        : zeropp::adaptor<Transport>(std::move(inner)), shared_(std::move(shared)) {}

    /// Calls operation(send, bytes), which enqueues the inner operation, with the planned fault. `sent` is the number
    /// of bytes at `send`.
    template <class E, class Operation>
    void carry(const E& exec, const std::byte* send, std::size_t sent, std::size_t bytes, Operation operation) {
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
            return operation(send, bytes / 2);
        case fault::flip_bit:
            // Sized before the copy is enqueued: its address is needed now, and a queue may copy at any time.
            shared_->flipped.resize(sent);
            exec.enqueue([s = shared_, send, sent] {
                std::copy_n(send, sent, s->flipped.begin());
                if (sent != 0) s->flipped[sent / 2] ^= std::byte{0x10};
            });
            return operation(shared_->flipped.data(), bytes);
        case fault::duplicate:
            operation(send, bytes);
            break;
        }
        operation(send, bytes);
    }

    std::shared_ptr<state> shared_;
};

}  // namespace zeropp_test
