#pragma once
/// \file
/// A transport's operations over a wire: order of messages, pieces, acknowledgements, deadlines and failure.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/failure.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/transport.hpp>
#include <zeropp/transport/wire.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// Runs a transport's operations over a wire, one at a time. Serves all peers at once; messages travel in pieces.
///
/// With a timeout (on all ranks or on none), each operation ends with an acknowledgement from each peer. It says that
/// the peer ran the same operation, and that the peer's wire has completed all sends. Ranks that ran different
/// operations throw precondition_error, unless the deadline passes first. A rank that gives up tells its peers, which
/// throw the same timeout_error, or peer_error for another cause. So no operation succeeds with bytes of a rank that
/// has given up.
///
/// Every error of an operation is final, except a message of wrong length if the operation otherwise completes. After a
/// final error, the whole family (exchanges split from one another) throws that error again.
template <wire Wire>
class peer_exchange {
public:
    /// Makes the first exchange of a new family, over `wire`.
    peer_exchange(Wire&& wire, transport_options options)
        : peer_exchange(std::move(wire), options.timeout, detail::call_log(), detail::world_ranks(wire.size()),
                        std::make_shared<detail::first_failure>()) {}

    /// Makes an exchange in the family of `parent`, over a wire of `members`, ranks of `parent`.
    peer_exchange(Wire&& wire, const peer_exchange& parent, std::span<const int> members)
        : peer_exchange(std::move(wire), parent.timeout_, parent.log_.split(),
                        detail::world_ranks(parent.world_ranks_, members), parent.failure_) {}

    ~peer_exchange() {
        if (failure_->any()) wire_.keep();
    }

    peer_exchange(const peer_exchange&) = delete;
    peer_exchange& operator=(const peer_exchange&) = delete;

    /// Notes the collective's name for errors.
    void begin(const short_text& collective) { log_.begin(collective); }

    /// Returns `what`, the next operation, with the name and number of its collective. Call this in the order of
    /// operations, because `run` may come later.
    detail::operation_in_call next(const operation& what) { return log_.next(what); }

    Wire& wire() { return wire_; }

    /// Fails the family with `cause`, unless it has failed before, and tells this exchange's peers.
    void fail(std::exception_ptr cause) {
        failure_->set(std::move(cause));
        abort();
    }

    /// Options of this exchange.
    transport_options options() const { return {.timeout = timeout_}; }

    /// Runs the operation `what` as transport_on defines it. Blocks until all its messages are complete. Copies this
    /// rank's message to itself on `exec`.
    template <class E>
    void run(const E& exec, const detail::operation_in_call& what, const std::byte* send, std::byte* recv) {
        refuse_after_failure();
        if (what.bytes != 0 && what.sends(wire_.rank())) {
            const std::byte* const from = what.sent_to(wire_.rank(), send);
            std::byte* const own = recv + static_cast<std::size_t>(wire_.rank()) * what.bytes;
            if (from != own) exec.copy(own, from, what.bytes);
        }
        carry(what, send, recv);
    }

    /// Returns when all ranks have called `meet` for `what`; at once without a timeout. Throws the family's failure.
    void meet(const operation& what) {
        refuse_after_failure();
        if (timed()) carry(next(what), nullptr, nullptr);
    }

private:
    using request = typename Wire::request;
    using acknowledgement = detail::acknowledgement;

    /// Acknowledgements of the current operation. The wire reads and writes them.
    struct acknowledgements {
        acknowledgement own;
        acknowledgement abort;               // sent if this rank gives up
        std::vector<acknowledgement> peers;  // [i]: of source(i)
    };

    /// Result of an operation's messages. The wire reports a message that is too long, in `truncated`, but not one that
    /// is too short. So `received` counts the bytes of all messages.
    struct outcome {
        std::exception_ptr truncated;
        std::size_t received = 0;
    };

    peer_exchange(Wire&& wire, std::chrono::milliseconds timeout, detail::call_log log, std::vector<int> world_ranks,
                  std::shared_ptr<detail::first_failure> failure)
        : wire_(std::move(wire)), timeout_(timeout), log_(std::move(log)), world_ranks_(std::move(world_ranks)),
          failure_(std::move(failure)), requests_(in_flight * requests_of_a_piece()) {
        if (!timed()) return;
        acknowledgements_->peers.resize(peers());
        ack_receives_ = std::vector<request>(peers());
        ack_sends_ = std::vector<request>(peers());
        acknowledged_.resize(peers());
    }

    /// Exchanges the messages of the operation `what` with the other ranks. Blocks until they are complete.
    void carry(const detail::operation_in_call& what, const std::byte* send, std::byte* recv) {
        what_ = what;
        ++operations_;
        deadline_ = detail::deadline_after(timeout_);
        outcome all;
        try {
            move(send, recv, all);
        } catch (...) {
            failure_->set(std::current_exception());
            abort();
            throw;
        }
        // All messages are complete, so the ranks can go on after the errors below.
        if (all.truncated) std::rethrow_exception(all.truncated);
        std::size_t expected = 0;
        for (std::size_t i = 0; i != peers(); ++i) expected += what_.sends(source(i)) ? what_.bytes : 0;
        if (all.received != expected) {
            throw precondition_error(Wire::name, std::to_string(expected) + " bytes from the other ranks",
                                     std::to_string(all.received));
        }
    }

    void move(const std::byte* send, std::byte* recv, outcome& all) {
        const std::size_t pieces = ceil_div(what_.bytes, wire_.piece());  // of each message
        if (timed()) post_acknowledgements();
        for (std::size_t p = 0; p != pieces; ++p) {
            if (p >= in_flight) await(piece(p), all);
            post(piece(p), send, recv, p * wire_.piece());
        }
        all_posted_ = true;
        for (std::size_t p = pieces - std::min(pieces, in_flight); p != pieces; ++p) await(piece(p), all);
        if (timed()) await_acknowledgements();
    }

    /// Requests of piece `p` of all messages: a receive and a send for each peer. Pieces `in_flight` apart use the same
    /// requests.
    std::span<request> piece(std::size_t p) {
        return {requests_.data() + p % in_flight * requests_of_a_piece(), requests_of_a_piece()};
    }

    /// Starts to receive and send one piece of each peer's message, after the message's first `done` bytes.
    void post(std::span<request> piece, const std::byte* send, std::byte* recv, std::size_t done) {
        const std::size_t bytes = std::min(wire_.piece(), what_.bytes - done);
        // The tag tells apart messages with different numbers of pieces or roots. It also tells apart the operations of
        // ranks that are up to three operations out of step.
        const std::size_t size = ceil_div(what_.bytes, wire_.piece()) + static_cast<std::size_t>(what_.roots) * 31;
        const int tag = static_cast<int>(operations_ % operation_tags * size_tags + size % size_tags);
        // Every rank starts with another peer, so that no rank is the first destination of all.
        for (std::size_t i = 0; i != peers(); ++i) {
            if (what_.sends(source(i))) {
                std::byte* in = recv + static_cast<std::size_t>(source(i)) * what_.bytes + done;
                wire_.post_receive(piece[2 * i], in, bytes, source(i), tag);
            }
            if (what_.sends(wire_.rank())) {
                const std::byte* out = what_.sent_to(destination(i), send) + done;
                wire_.post_send(piece[2 * i + 1], out, bytes, destination(i), tag);
            }
        }
    }

    /// Waits until a piece of all messages is complete, and adds its results to `all`. Goes on after an error, because
    /// other messages still use the caller's memory.
    void await(std::span<request> piece, outcome& all) {
        for (std::size_t i = 0; i != piece.size(); ++i) {
            wire_completion of;
            const auto done = [&] {
                of = wire_.test(piece[i]);
                if (!of.complete && timed()) acknowledge();
                return of.complete;
            };
            if (!detail::poll_until(done, deadline_)) {
                std::vector<int> missing = unfinished(piece);
                if (missing.empty()) missing.push_back(i % 2 == 0 ? source(i / 2) : destination(i / 2));
                time_out(std::move(missing));
            }
            if (of.truncated && !all.truncated) all.truncated = of.truncated;
            all.received += of.bytes;
        }
    }

    // With a timeout, each operation receives an acknowledgement from each peer, with the tag `ack_tag`. A rank that
    // gives up sends each peer a further acknowledgement.

    bool timed() const { return timeout_ != std::chrono::milliseconds::zero(); }

    /// Starts to receive the peers' acknowledgements.
    void post_acknowledgements() {
        acknowledgements_->own.operation = what_;
        all_posted_ = false;
        std::fill(acknowledged_.begin(), acknowledged_.end(), false);
        for (std::size_t i = 0; i != peers(); ++i) {
            wire_.post_receive(ack_receives_[i], reinterpret_cast<std::byte*>(&acknowledgements_->peers[i]),
                               sizeof(acknowledgement), source(i), ack_tag);
        }
    }

    /// Throws if an acknowledgement reports a failure or another operation.
    void check_acknowledgements() {
        for (std::size_t i = 0; i != ack_receives_.size(); ++i) {
            if (!wire_.active(ack_receives_[i]) || !complete(ack_receives_[i])) continue;
            const acknowledgement& given = acknowledgements_->peers[i];
            given.require_done();
            if (given.operation != what_) {
                const auto on = [&](int r) { return " on rank " + std::to_string(world_rank(r)); };
                throw precondition_error(Wire::name, "the same operation on every rank",
                                         what_.text() + on(wire_.rank()) + ", " + given.operation.text() +
                                             on(source(i)));
            }
        }
    }

    /// Checks the peers' acknowledgements. Sends a peer this rank's acknowledgement as soon as the wire is done with
    /// all messages to that peer. So a peer that receives nothing does not delay the others.
    void acknowledge() {
        check_acknowledgements();
        for (std::size_t i = 0; all_posted_ && i != peers(); ++i) {
            if (acknowledged_[i] || !sent(i)) continue;
            wire_.post_send(ack_sends_[i], reinterpret_cast<const std::byte*>(&acknowledgements_->own),
                            acknowledgements_->own.bytes(), destination(i), ack_tag);
            acknowledged_[i] = true;
        }
    }

    /// True if the wire is done with all pieces posted to destination(i).
    bool sent(std::size_t i) {
        for (std::size_t p = 0; p != in_flight; ++p) {
            if (!complete(piece(p)[2 * i + 1])) return false;
        }
        return true;
    }

    /// Waits until all peers' acknowledgements have arrived and this rank's are sent.
    void await_acknowledgements() {
        const auto active = [&](const request& r) { return wire_.active(r); };
        const auto done = [&] {
            acknowledge();
            for (request& r : ack_sends_) complete(r);
            return std::none_of(ack_receives_.begin(), ack_receives_.end(), active) &&
                   std::none_of(ack_sends_.begin(), ack_sends_.end(), active);
        };
        if (detail::poll_until(done, deadline_)) return;
        std::vector<int> silent;
        for (std::size_t i = 0; i != peers(); ++i) {
            if (active(ack_receives_[i])) silent.push_back(source(i));
            if (active(ack_sends_[i])) silent.push_back(destination(i));
        }
        time_out(std::move(silent));
    }

    bool complete(request& r) {
        const wire_completion of = wire_.test(r);
        if (of.truncated) std::rethrow_exception(of.truncated);
        return of.complete;
    }

    /// Ranks to or from which the message of a piece is incomplete.
    std::vector<int> unfinished(std::span<request> piece) {
        std::vector<int> ranks;
        for (std::size_t i = 0; i != peers(); ++i) {
            if (!complete(piece[2 * i])) ranks.push_back(source(i));
            if (!complete(piece[2 * i + 1])) ranks.push_back(destination(i));
        }
        return ranks;
    }

    /// Throws timeout_error for the ranks `missing`. But if a peer has acknowledged a failure, throws that failure, the
    /// true cause.
    [[noreturn]] void time_out(std::vector<int> missing) {
        check_acknowledgements();
        std::sort(missing.begin(), missing.end());
        missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
        throw detail::timed_out(Wire::name, timeout_, what_.text(),
                                detail::not_heard_from(detail::world_ranks(world_ranks_, missing)));
    }

    /// If the family has failed, tells the peers, so that they do not wait, and throws the first failure again.
    void refuse_after_failure() {
        if (!failure_->any()) return;
        abort();
        failure_->rethrow();
    }

    /// Cancels receives, tells the peers that this rank has given up, and abandons unfinished requests.
    void abort() {
        if (std::exchange(aborted_, true)) return;
        std::vector<request*> receives;
        for (std::size_t i = 0; i < requests_.size(); i += 2) receives.push_back(&requests_[i]);
        for (request& r : ack_receives_) receives.push_back(&r);
        std::erase_if(receives, [&](const request* r) { return !wire_.active(*r); });
        for (request* r : receives) wire_.cancel(*r);
        if (timed()) {
            acknowledgements_->abort = acknowledgement::of_failure(*failure_, Wire::name, world_rank(wire_.rank()));
            for (std::size_t i = 0; i != peers(); ++i) {
                request sent{};
                try {
                    wire_.post_send(sent, reinterpret_cast<const std::byte*>(&acknowledgements_->abort),
                                    acknowledgements_->abort.bytes(), destination(i), ack_tag);
                } catch (...) {
                    // The caller throws the first failure. A peer that was not told notices at its deadline.
                }
                wire_.abandon(sent);
            }
        }
        // A receive that has begun cannot be cancelled, but most complete within 100 ms (`moment`).
        const auto all_back = [&] {
            std::erase_if(receives, [&](request* r) {
                try {
                    return wire_.test(*r).complete;
                } catch (...) {
                    return true;
                }
            });
            return receives.empty();
        };
        detail::poll_until(all_back, detail::deadline_after(moment));
        for (auto* all : {&requests_, &ack_receives_, &ack_sends_}) {
            for (request& r : *all) wire_.abandon(r);
        }
        // The wire may still read and write the acknowledgements.
        detail::keep_until_exit(std::move(acknowledgements_));
    }

    std::size_t peers() const { return static_cast<std::size_t>(wire_.size() - 1); }
    std::size_t requests_of_a_piece() const { return 2 * peers(); }
    int world_rank(int r) const { return world_ranks_[static_cast<std::size_t>(r)]; }

    /// Rank that is i + 1 below this rank, modulo the number of ranks.
    int source(std::size_t i) const { return (wire_.rank() + wire_.size() - 1 - static_cast<int>(i)) % wire_.size(); }
    /// Rank that is i + 1 above this rank, modulo the number of ranks.
    int destination(std::size_t i) const { return (wire_.rank() + 1 + static_cast<int>(i)) % wire_.size(); }

    // Number of pieces in flight of each message: few, so that one completes often while bytes flow. poll_until sleeps
    // if none completes.
    static constexpr std::size_t in_flight = 8;
    static constexpr std::size_t operation_tags = 4;
    static constexpr std::size_t size_tags = 8191;
    static constexpr int ack_tag = 32767;
    static_assert(operation_tags * size_tags <= ack_tag);
    static constexpr std::chrono::milliseconds moment{100};

    Wire wire_;
    std::chrono::milliseconds timeout_;
    detail::call_log log_;
    std::vector<int> world_ranks_;                    // [r]: world rank of the wire's rank r
    std::shared_ptr<detail::first_failure> failure_;  // first failure of the family
    std::vector<request> requests_;                   // of `in_flight` pieces, each a receive and a send for each peer
    std::shared_ptr<acknowledgements> acknowledgements_ = std::make_shared<acknowledgements>();
    std::vector<request> ack_receives_;  // [i]: from source(i)
    std::vector<request> ack_sends_;     // [i]: to destination(i)
    std::vector<bool> acknowledged_;     // [i]: the operation's acknowledgement to destination(i) is posted
    bool all_posted_ = false;            // true if all pieces of the operation are posted
    bool aborted_ = false;

    detail::operation_in_call what_;                  // the current operation
    std::size_t operations_ = 0;                      // number of operations so far
    std::chrono::steady_clock::time_point deadline_;  // of the current operation
};

}  // namespace zeropp
