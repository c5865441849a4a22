#pragma once
/// \file
/// The wire concept: a network of messages, of which wire_transport makes a transport.

#include <zeropp/transport/transport.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string_view>

namespace zeropp {

/// State of a message that a wire sends or receives.
struct wire_completion {
    bool complete = false;
    /// Bytes received; 0 for a send.
    std::size_t bytes = 0;
    /// The network's error if a received message was longer than its buffer. The ranks can go on.
    std::exception_ptr truncated = nullptr;
};

/// Messages between a group of ranks, buffered or not. Messages of one sender and one tag (0 to 32767) go into the
/// receives for that sender and tag, in order, each once; no message is lost. A message shorter than its buffer
/// completes the receive. Functions do not block, and throw the network's errors. A post that throws leaves no message.
///   `rank()`, `size()`    number of this rank, from 0, and number of ranks
///   `request`             a message on its way; inactive if default-constructed
///   `post_receive(r, to, bytes, source, tag)`, `post_send(r, from, bytes, destination, tag)`
///                         start a message. Its memory and `r` stay in place until the message is complete
///   `test(r)`             state of the message; if complete, makes `r` inactive. An inactive `r` is complete
///   `active(r)`           true if `r` stands for a message
///   `cancel(r)`           cancels a receive: `test` then finds it complete; perhaps never, if some of its bytes have
///                         arrived. Does nothing to a send
///   `abandon(r)`          makes `r` inactive. The message may still use its memory
///   `space`               memory that the wire reads and writes: host_space or device_space
///   `name`                name of the transport in errors
///   `piece()`             bytes of the pieces in which long messages travel, equal on all ranks
///   `split(members)`      a wire of `members`, as a transport's split. All ranks call it; a rank with an empty list
///                         gets no wire
///   `require_other_threads()`  throws precondition_error unless any thread may call the functions
///   `keep()`              called after a failure: destruction must not wait for other ranks
template <class W>
concept wire =
    requires(W& w, const W& c, typename W::request& r, std::byte* to, const std::byte* from, std::size_t bytes,
             int peer, int tag, std::span<const int> members, const typename W::request& posted) {
        requires std::movable<W> && std::default_initializable<typename W::request>;
        typename W::space;
        { W::name } -> std::convertible_to<std::string_view>;
        { c.rank() } -> std::same_as<int>;
        { c.size() } -> std::same_as<int>;
        w.post_receive(r, to, bytes, peer, tag);
        w.post_send(r, from, bytes, peer, tag);
        { w.test(r) } -> std::same_as<wire_completion>;
        { w.active(posted) } -> std::same_as<bool>;
        w.cancel(r);
        w.abandon(r);
        { c.piece() } -> std::same_as<std::size_t>;
        { w.split(members) } -> std::same_as<std::optional<W>>;
        c.require_other_threads();
        w.keep();
    };

/// A wire from which survivors of a failure make a smaller one. Neither function waits for dead ranks.
///   `revoke()`  ends all messages, pending and later ones, in errors: of this wire and of all that were split from it
///               or from a common parent, on all ranks. Throws precondition_error if the network cannot do so
///   `shrink(excluded, timeout)`  after `revoke`: survivors as in shrinkable_transport, agreed on by the network.
///               Throws timeout_error if the ranks have not agreed after `timeout`; zero means no limit
template <class W>
concept shrinkable_wire = wire<W> && requires(W& w, std::span<const int> excluded, std::chrono::milliseconds timeout) {
    w.revoke();
    { w.shrink(excluded, timeout) } -> std::same_as<shrunk<W>>;
};

}  // namespace zeropp
