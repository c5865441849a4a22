#pragma once
/// \file
/// The wire concept: a network of messages, of which wire_transport makes a transport.

#include <concepts>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string_view>

namespace zeropp {

/// What has become of a message that was posted.
struct wire_completion {
    bool complete = false;
    /// Of a receive: how many came.
    std::size_t bytes = 0;
    /// Of a receive whose message was longer than its room: the network's error. The peers can go on.
    std::exception_ptr truncated = nullptr;
};

/// Messages between a group of ranks, unbuffered or not: those of one source and tag go into the receives posted for
/// them, first into first, each once, and none is lost. One that is shorter than its room completes it. Tags are from 0
/// to 32767. No function blocks; all throw what the network says is wrong, and a post that throws leaves none.
///   `rank()`, `size()`
///   `request`                             a message on its way; default-constructed, none
///   `post_receive(r, to, bytes, source, tag)`, `post_send(r, from, bytes, destination, tag)`
///                                         start one. Its memory and `r` stay where they are until it is complete
///   `test(r)`                             asks; a message that is complete, or none, is none from then on
///   `active(r)`                           whether it is none
///   `cancel(r)`                           gives a receive up, if nothing of it has come: `test` finds it complete
///                                         then, or never. Of a send, does nothing
///   `abandon(r)`                          makes it none whatever becomes of the message, whose memory stays in use
///   `space`                               the memory that it reads and writes: host_space or device_space
///   `name`                                of the transport, for errors
///   `piece()`                             bytes of the pieces in which long messages travel, the same on all ranks
///   `split(members)`                      a wire of `members`, as a transport's split. All ranks call it; a rank with an
///                                         empty list only takes part, and gets nothing
///   `require_other_threads()`             throws precondition_error if threads other than the caller's may not use it
///   `keep()`                              after a failure: destruction must not wait for other ranks
template <class W>
concept wire = requires(W& w, const W& c, typename W::request& r, std::byte* to, const std::byte* from,
                        std::size_t bytes, int peer, int tag, std::span<const int> members) {
    requires std::movable<W> && std::default_initializable<typename W::request>;
    typename W::space;
    { W::name } -> std::convertible_to<std::string_view>;
    { c.rank() } -> std::same_as<int>;
    { c.size() } -> std::same_as<int>;
    w.post_receive(r, to, bytes, peer, tag);
    w.post_send(r, from, bytes, peer, tag);
    { w.test(r) } -> std::same_as<wire_completion>;
    { w.active(r) } -> std::same_as<bool>;
    w.cancel(r);
    w.abandon(r);
    { c.piece() } -> std::same_as<std::size_t>;
    { w.split(members) } -> std::same_as<std::optional<W>>;
    c.require_other_threads();
    w.keep();
};

}  // namespace zeropp
