#pragma once
/// \file
/// Operations of a transport as values: how they run, and their names in errors.

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace zeropp {

/// One operation of a transport: its kind and sizes, which are equal on all ranks.
struct operation {
    enum kinds : std::uint8_t { all_gather, all_to_all, broadcast, split, registration };

    /// Kind of the operation, as transport_on and broadcasting_transport_on define it. Registrations of memory are
    /// NCCL's.
    kinds kind = all_gather;
    /// Number of bytes of the message from each sender to each rank, or of the memory to register.
    std::size_t bytes = 0;
    /// Number of roots of a broadcast, the lowest ranks, which alone send; 0 for other kinds.
    int roots = 0;

    /// True if `rank` sends messages: in a broadcast only the roots, otherwise every rank.
    bool sends(int rank) const { return kind != broadcast || rank < roots; }

    /// First byte in `send` of the message to rank `to`. Only an all-to-all has a separate message for each rank.
    const std::byte* sent_to(int to, const std::byte* send) const {
        return kind == all_to_all ? send + static_cast<std::size_t>(to) * bytes : send;
    }

    /// Text such as "broadcast of 4096 bytes from 2 ranks".
    [[gnu::cold]] std::string text() const {
        static constexpr const char* names[] = {"all_gather", "all_to_all", "broadcast", "split", "registration"};
        if (kind == split) return names[kind];
        // An operation that a peer has sent may have any number as its kind.
        std::string what = kind <= registration ? names[kind] : "operation " + std::to_string(kind);
        what += " of " + std::to_string(bytes) + " bytes";
        return kind != broadcast ? what : what + " from " + std::to_string(roots) + (roots == 1 ? " rank" : " ranks");
    }

    friend bool operator==(const operation&, const operation&) = default;
};

/// A transport with one function for all operations that move bytes, on executions of type E.
///   `move(exec, what, send, recv)` runs `what`, an all_gather, all_to_all or broadcast. See transport_on and
///                                  broadcasting_transport_on
template <class T, class E>
concept moves_on = execution<E> && requires(T& t, const E& exec, const operation& what, const std::byte* send,
                                            std::byte* recv) { t.move(exec, what, send, recv); };

/// Base of a transport `Derived` that has `move`. Provides all_gather, all_to_all and broadcast as calls of `move`.
template <class Derived>
class operations {
public:
    template <class E>
        requires moves_on<Derived, E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        static_cast<Derived&>(*this).move(exec, operation{operation::all_gather, bytes}, send, recv);
    }

    template <class E>
        requires moves_on<Derived, E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        static_cast<Derived&>(*this).move(exec, operation{operation::all_to_all, bytes}, send, recv);
    }

    /// Broadcasts from the lowest `roots` ranks, see broadcasting_transport_on. Throws precondition_error if the
    /// transport cannot broadcast, or unless `roots` is from 1 to `size()`.
    template <class E>
        requires moves_on<Derived, E>
    void broadcast(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes, int roots) {
        auto& self = static_cast<Derived&>(*this);
        if (!can_broadcast<E>(self)) {
            throw precondition_error("broadcast", "a transport that can broadcast", "one that cannot");
        }
        if (roots < 1 || roots > self.size()) {
            throw precondition_error("broadcast", "1 to " + std::to_string(self.size()) + " ranks that send",
                                     std::to_string(roots));
        }
        self.move(exec, operation{operation::broadcast, bytes, roots}, send, recv);
    }
};

namespace detail {

/// Runs the operation `what` on `transport`. Requires an all_gather, an all_to_all or, if the transport can broadcast,
/// a broadcast.
template <class T, execution E>
void run_operation(T& transport, const E& exec, const operation& what, const std::byte* send, std::byte* recv) {
    if (what.kind == operation::all_gather) {
        transport.all_gather(exec, send, recv, what.bytes);
    } else if (what.kind == operation::all_to_all) {
        transport.all_to_all(exec, send, recv, what.bytes);
    } else if constexpr (broadcasting_transport_on<T, E>) {
        transport.broadcast(exec, send, recv, what.bytes, what.roots);
    }
}

/// An operation, and the collective to which it belongs.
struct operation_in_call : operation {
    /// Name of the collective; empty if none has begun, and for a split.
    short_text collective;
    /// Number of the collective on its transport, from 1; number of the operation if it belongs to no collective.
    std::uint64_t call = 0;

    friend bool operator==(const operation_in_call&, const operation_in_call&) = default;

    /// Text such as "call 7, all_gather of 4096 bytes in quantized_all_gather".
    [[gnu::cold]] std::string text() const {
        const std::string what = "call " + std::to_string(call) + ", " + operation::text();
        return collective == short_text() ? what : what + " in " + collective.str();
    }
};

/// Log of the collectives on one rank's transport: gives each a number, and tells each operation its collective, for
/// errors. An operation belongs to the last collective that began on its transport, or on a transport from which its
/// transport was split. All the transport's ranks take part in these collectives, so they agree about names and
/// numbers. Copies share the log. Thread-safe.
class call_log {
public:
    /// Log of a transport that is split from this log's transport.
    [[gnu::noinline]] call_log split() const {
        call_log child;
        child.own_->above = own_;
        child.own_->root = &root();
        return child;
    }

    /// Notes that `collective` begins, and gives it the next number. The rank may then throw before the collective's
    /// first operation.
    void begin(const short_text& collective) {
        entry& all = root();
        const std::lock_guard lock(all.mutex);
        own_->collective = collective;
        ++own_->calls;
        own_->began = ++all.begun;
    }

    /// `what`, the next operation on this transport, with the collective to which the operation belongs. A split
    /// belongs to none.
    operation_in_call next(const operation& what) {
        const std::lock_guard lock(root().mutex);
        ++own_->operations;
        if (what.kind == operation::split) return {what, {}, own_->operations};
        const entry* last = own_.get();
        for (const entry* e = own_->above.get(); e != nullptr; e = e->above.get()) {
            if (e->began > last->began) last = e;
        }
        return {what, last->collective, last->began == 0 ? own_->operations : last->calls};
    }

private:
    struct entry {
        short_text collective;
        std::uint64_t calls = 0;
        std::uint64_t began = 0;  // number of this transport's last collective in the root's count `begun`; 0: none
        std::uint64_t operations = 0;
        std::shared_ptr<entry> above;  // entry of the transport from which this one was split
        entry* root = nullptr;         // entry of the first transport in the chain of splits; nullptr in that entry
        std::mutex mutex;              // in the root entry: guards the entries of all splits
        std::uint64_t begun = 0;       // in the root entry: number of collectives on all transports
    };

    entry& root() const { return own_->root != nullptr ? *own_->root : *own_; }

    // The only member: programs compile copies of transports in many places, and one pointer keeps that code small.
    std::shared_ptr<entry> own_ = std::make_shared<entry>();
};

}  // namespace detail
}  // namespace zeropp
