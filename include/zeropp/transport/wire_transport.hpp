#pragma once
/// \file
/// A transport over a wire.

#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/peer_exchange.hpp>
#include <zeropp/transport/transport.hpp>
#include <zeropp/transport/wire.hpp>

#include <concepts>
#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace zeropp {

/// A transport over a wire, which is a network of messages. Adds operations in the order of their execution, splits,
/// timeouts and failure, as peer_exchange describes them.
///
/// After a failure, this transport and its family (all transports that were split from one another) throw the first
/// error again. They call `keep` on their wires, so that destruction does not block.
///
/// Device memory: operations wait for the stream, and block until bytes have arrived. CUDA graphs cannot capture them.
template <wire Wire>
class wire_transport : public operations<wire_transport<Wire>> {
public:
    /// Makes a transport over `wire`. Every rank of the wire must do so, all with a timeout or all without one. Throws
    /// precondition_error if the timeout is negative.
    explicit wire_transport(Wire wire, transport_options options = {}) {
        detail::require_timeout(Wire::name, options);
        peers_ = std::make_unique<exchange>(std::move(wire), options);
    }

    int rank() const { return peers_->wire().rank(); }
    int size() const { return peers_->wire().size(); }
    /// The wire of this transport.
    const Wire& network() const { return peers_->wire(); }

    /// Names the collective in errors of later operations. See begin_collective.
    void begin(const collective_call& call, const std::string& /*problem*/) { peers_->begin(call.primitive); }

    /// Runs the operation `what` in its turn on host executions; on `host`, and executions derived from `host`, on the
    /// calling thread. On a stream, first waits for the stream's work, because wires know nothing of streams.
    template <execution E>
        requires std::same_as<typename E::space, typename Wire::space>
    void move(const E& exec, const operation& what, const std::byte* send, std::byte* recv) {
        exchange& peers = *peers_;
        const auto named = peers.next(what);
        if constexpr (std::same_as<typename Wire::space, device_space>) {
            exec.wait();
            peers.run(exec, named, send, recv);
        } else {
            if constexpr (!std::derived_from<E, host>) peers_->wire().require_other_threads();
            exec.enqueue([&peers, named, send, recv] { peers.run(host{}, named, send, recv); });
        }
    }

    /// Transport of `members`: ranks of this one, in their new order. With a timeout, the ranks first meet within that
    /// time. The wire's own split has no deadline: a rank that dies after the meeting may leave the others waiting.
    /// Requires that no operation is in flight on a queue.
    wire_transport split(std::span<const int> members) {
        const std::optional<precondition_error> wrong = detail::split_error(Wire::name, members, rank(), size());
        meet();
        // A rank with a wrong list takes part before it throws, so that the others do not wait for it.
        std::optional<Wire> part = peers_->wire().split(wrong ? std::span<const int>() : members);
        if (wrong) throw precondition_error(*wrong);
        if (!part || part->size() != std::ssize(members)) {
            throw detail::joined_error(Wire::name, members, part ? part->size() : 0);
        }
        return wire_transport(std::make_unique<exchange>(std::move(*part), *peers_, members));
    }

    /// Transport of the survivors of a failure, see shrinkable_transport and shrinkable_wire. The timeout limits the
    /// agreement.
    shrunk<wire_transport> shrink(std::span<const int> excluded = {})
        requires shrinkable_wire<Wire>
    {
        detail::require_excluded(Wire::name, excluded, rank(), size());
        if (shrunk_) throw precondition_error(Wire::name, "one shrink of each transport", "another one");
        peers_->wire().revoke();
        peers_->fail(std::make_exception_ptr(peer_error(std::string(Wire::name) + ": this rank has called shrink")));
        shrunk<Wire> left = peers_->wire().shrink(excluded, peers_->options().timeout);
        shrunk_ = true;
        return {wire_transport(std::move(left.next), peers_->options()), std::move(left.survivors)};
    }

protected:
    /// Blocks until all ranks have called `meet`; throws timeout_error after the timeout. Without a timeout, returns at
    /// once. Throws an earlier failure again.
    void meet() const { peers_->meet({operation::split}); }

private:
    using exchange = peer_exchange<Wire>;

    explicit wire_transport(std::unique_ptr<exchange> peers) : peers_(std::move(peers)) {}

    std::unique_ptr<exchange> peers_;
    bool shrunk_ = false;
};

}  // namespace zeropp
