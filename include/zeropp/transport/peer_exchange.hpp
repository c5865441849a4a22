#pragma once
/// \file
/// How a transport's operations go over a wire: schedule, pieces, acknowledgements, deadlines and failure.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/transport/acknowledgement.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/poll.hpp>
#include <zeropp/transport/transport.hpp>
#include <zeropp/transport/wire.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeropp {

/// The operations of a transport over a wire, one at a time: every peer is served at once, and messages travel in
/// pieces, a few of each in flight.
///
/// With a timeout (all ranks have one, or none has), an operation ends with an acknowledgement from each peer: that it
/// did the same, and that its wire is done with all it sent. Ranks that did something else get precondition_error,
/// where that shows before the deadline. A rank that gives up aborts: it tells its peers, which get the same
/// timeout_error, or for another cause peer_error, so that no rank takes for data what a peer that has given up left in
/// its memory.
///
/// After an error in an operation with a timeout, or without one an error of the wire's other than a message that is
/// too long, this exchange and all of its family, that it was split from or that were split from it, throw that first
/// error again.
///
/// Stays where it was made.
template <wire Wire>
class peer_exchange {
public:
    /// Of a family of its own. `name` is for errors and must outlive this; pieces are of so many bytes.
    peer_exchange(Wire& wire, std::string_view name, std::size_t piece, transport_options options)
        : peer_exchange(wire, name, piece, options.timeout, detail::call_log(), detail::world_ranks(wire.size()),
                        std::make_shared<detail::first_failure>()) {}

    /// Of the same family as `parent`: over the wire of `members`.
    peer_exchange(Wire& wire, const peer_exchange& parent, std::span<const int> members)
        : peer_exchange(wire, parent.name_, parent.piece_, parent.timeout_, parent.log_.split(),
                        detail::world_ranks(parent.world_ranks_, members), parent.failure_) {}

    peer_exchange(const peer_exchange&) = delete;
    peer_exchange& operator=(const peer_exchange&) = delete;

    /// So that errors name the collective.
    void begin(const short_text& collective) { log_.begin(collective); }

    /// What comes next, to be said in the order of the calls, where `exchange` may run later.
    detail::operation_in_call next(detail::operation operation, std::size_t bytes, int roots = 0) {
        return log_.next(operation, bytes, roots);
    }

    /// Whether one of the family has failed.
    bool failed() const { return failure_->any(); }

    /// The transport's operation of that name. This rank's own part is a copy on `exec`. Blocks.
    template <class E>
    void exchange(const E& exec, const detail::operation_in_call& operation, const std::byte* send, std::byte* recv) {
        refuse_after_failure();
        const std::size_t bytes = operation.bytes;
        if (bytes != 0 && operation.sends(wire_.rank())) {
            const std::byte* const from = operation.sent_to(wire_.rank(), send);
            std::byte* const own = recv + static_cast<std::size_t>(wire_.rank()) * bytes;
            if (from != own) exec.copy(own, from, bytes);
        }
        carry(operation, send, recv);
    }

    /// Returns when all ranks have called it, where there is a timeout.
    void barrier(detail::operation operation) {
        if (!timed()) return;
        refuse_after_failure();
        carry(next(operation, 0), nullptr, nullptr);
    }

private:
    using request = typename Wire::request;
    using acknowledgement = detail::acknowledgement;

    /// What the wire reads and writes, of one operation at a time.
    struct acknowledgements {
        acknowledgement own;
        acknowledgement abort;               // if this rank gives up
        std::vector<acknowledgement> peers;  // by distance less 1, see source
    };

    /// What has become of the messages so far. One that is too long is the wire's error; one that is too short is not,
    /// and would leave old bytes for new ones.
    struct outcome {
        std::exception_ptr truncated;
        std::size_t received = 0;
    };

    peer_exchange(Wire& wire, std::string_view name, std::size_t piece, std::chrono::milliseconds timeout,
                  detail::call_log log, std::vector<int> world_ranks, std::shared_ptr<detail::first_failure> failure)
        : wire_(wire), name_(name), piece_(piece), timeout_(timeout), log_(std::move(log)),
          world_ranks_(std::move(world_ranks)), failure_(std::move(failure)), requests_(in_flight * round_size()) {
        if (!timed()) return;
        acknowledgements_->peers.resize(peers());
        ack_receives_ = std::vector<request>(peers());
        ack_sends_ = std::vector<request>(peers());
        acknowledged_.resize(peers());
    }

    /// The part of an operation that is between ranks.
    void carry(const detail::operation_in_call& operation, const std::byte* send, std::byte* recv) {
        what_ = operation;
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
        // All messages are complete, so that the ranks are in step and can go on whatever went wrong.
        if (all.truncated) std::rethrow_exception(all.truncated);
        std::size_t expected = 0;
        for (std::size_t i = 0; i != peers(); ++i) expected += what_.sends(source(i)) ? what_.bytes : 0;
        if (all.received != expected) {
            throw precondition_error(name_, std::to_string(expected) + " bytes from the other ranks",
                                     std::to_string(all.received));
        }
    }

    void move(const std::byte* send, std::byte* recv, outcome& all) {
        const std::size_t pieces = ceil_div(what_.bytes, piece_);  // of each message; a round is one for every peer
        if (timed()) post_acknowledgements();
        for (std::size_t p = 0; p != pieces; ++p) {
            if (p >= in_flight) await(round(p), all);
            post(round(p), send, recv, p * piece_);
        }
        const std::size_t oldest = pieces - std::min(pieces, in_flight);
        if (timed()) acknowledge(oldest, pieces);
        for (std::size_t p = oldest; p != pieces; ++p) await(round(p), all);
        if (timed()) await_acknowledgements();
    }

    /// The messages of piece `p`, and of those in_flight before and after it: a receive and a send for each peer.
    std::span<request> round(std::size_t p) { return {requests_.data() + p % in_flight * round_size(), round_size()}; }

    /// Starts to move the piece behind the first `done` bytes of every peer's message.
    void post(std::span<request> round, const std::byte* send, std::byte* recv, std::size_t done) {
        const std::size_t bytes = std::min(piece_, what_.bytes - done);
        // A piece must not be taken for one of a message of another size or from other roots, nor, should ranks be out
        // of step, of the operations before and after.
        const std::size_t size = ceil_div(what_.bytes, piece_) + static_cast<std::size_t>(what_.roots) * 31;
        const int tag = static_cast<int>(operations_ % operation_tags * size_tags + size % size_tags);
        // Every rank starts with another peer, so that no receiver is everybody's first.
        for (std::size_t i = 0; i != peers(); ++i) {
            if (what_.sends(source(i))) {
                std::byte* in = recv + static_cast<std::size_t>(source(i)) * what_.bytes + done;
                wire_.post_receive(round[2 * i], in, bytes, source(i), tag);
            }
            if (what_.sends(wire_.rank())) {
                const std::byte* out = what_.sent_to(destination(i), send) + done;
                wire_.post_send(round[2 * i + 1], out, bytes, destination(i), tag);
            }
        }
    }

    /// Waits for all messages of a round, one by one: after an error the rest still uses the caller's memory.
    void await(std::span<request> round, outcome& all) {
        for (std::size_t i = 0; i != round.size(); ++i) {
            wire_completion of;
            const auto done = [&] {
                of = wire_.test(round[i]);
                if (!of.complete) check_acknowledgements();
                return of.complete;
            };
            if (!detail::poll_until(done, deadline_)) {
                time_out(unfinished(round), {i % 2 == 0 ? source(i / 2) : destination(i / 2)});
            }
            if (of.truncated && !all.truncated) all.truncated = of.truncated;
            all.received += of.bytes;
        }
    }

    // Acknowledgements have a tag of their own, and each operation takes one from each peer; behind its last one, a
    // rank that gives up sends another.

    bool timed() const { return timeout_ != std::chrono::milliseconds::zero(); }

    /// Makes ready to receive the peers'.
    void post_acknowledgements() {
        acknowledgements_->own.operation = what_;
        std::fill(acknowledged_.begin(), acknowledged_.end(), false);
        for (std::size_t i = 0; i != peers(); ++i) {
            wire_.post_receive(ack_receives_[i], reinterpret_cast<std::byte*>(&acknowledgements_->peers[i]),
                               sizeof(acknowledgement), source(i), ack_tag);
        }
    }

    /// Throws if one that has come is not that the peer did the same.
    void check_acknowledgements() {
        for (std::size_t i = 0; i != ack_receives_.size(); ++i) {
            if (!wire_.active(ack_receives_[i]) || !complete(ack_receives_[i])) continue;
            const acknowledgement& given = acknowledgements_->peers[i];
            given.require_done();
            if (given.operation != what_) {
                const auto on = [&](int r) { return " on rank " + std::to_string(world_rank(r)); };
                throw precondition_error(name_, "the same operation on every rank",
                                         what_.text() + on(wire_.rank()) + ", " + given.operation.text() +
                                             on(source(i)));
            }
        }
    }

    /// Sends each peer this rank's, as soon as the wire is done with what it sends to that peer: in pieces from
    /// `oldest`. A peer that takes nothing does not keep the others waiting.
    void acknowledge(std::size_t oldest, std::size_t pieces) {
        const auto done = [&] {
            bool all = true;
            for (std::size_t i = 0; i != peers(); ++i) {
                if (!acknowledged_[i] && sent(i, oldest, pieces)) {
                    wire_.post_send(ack_sends_[i], reinterpret_cast<const std::byte*>(&acknowledgements_->own),
                                    acknowledgements_->own.bytes(), destination(i), ack_tag);
                    acknowledged_[i] = true;
                }
                all = all && acknowledged_[i];
            }
            if (!all) check_acknowledgements();
            return all;
        };
        if (detail::poll_until(done, deadline_)) return;
        std::vector<int> behind;
        for (std::size_t p = oldest; p != pieces && behind.empty(); ++p) behind = unfinished(round(p));
        time_out(behind, unacknowledged());
    }

    /// Whether all pieces from `oldest` to the i-th destination are out of this rank's memory.
    bool sent(std::size_t i, std::size_t oldest, std::size_t pieces) {
        for (std::size_t p = oldest; p != pieces; ++p) {
            if (!complete(round(p)[2 * i + 1])) return false;
        }
        return true;
    }

    /// Waits until all peers' have come, and this rank's have gone.
    void await_acknowledgements() {
        const auto active = [&](const request& r) { return wire_.active(r); };
        const auto done = [&] {
            check_acknowledgements();
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
        time_out(silent, {});
    }

    // Failure.

    bool complete(request& r) {
        const wire_completion of = wire_.test(r);
        if (of.truncated) std::rethrow_exception(of.truncated);
        return of.complete;
    }

    /// The peers of messages that are not complete.
    std::vector<int> unfinished(std::span<request> round) {
        std::vector<int> ranks;
        for (std::size_t i = 0; i != peers(); ++i) {
            if (!complete(round[2 * i])) ranks.push_back(source(i));
            if (!complete(round[2 * i + 1])) ranks.push_back(destination(i));
        }
        return ranks;
    }

    std::vector<int> unacknowledged() const {
        std::vector<int> ranks;
        for (std::size_t i = 0; i != peers(); ++i) {
            if (!acknowledged_[i]) ranks.push_back(destination(i));
        }
        return ranks;
    }

    /// Throws that `missing` were not heard from, or if they have been in the last moment, `waited_for`. What a peer
    /// says comes first: it may have given up for the true cause, and for that have sent nothing.
    [[noreturn]] void time_out(std::vector<int> missing, std::vector<int> waited_for) {
        check_acknowledgements();
        if (missing.empty()) missing = std::move(waited_for);
        std::sort(missing.begin(), missing.end());
        missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
        throw detail::timed_out(name_, what_, timeout_, detail::world_ranks(world_ranks_, missing));
    }

    /// Where one of the family has failed, throws the first failure again. Peers that are about to do what this rank
    /// refuses need not wait for it.
    void refuse_after_failure() {
        if (!failure_->any()) return;
        abort();
        failure_->rethrow();
    }

    /// Takes back from the wire what it gives back, and tells the peers that this rank has given up.
    void abort() {
        if (std::exchange(aborted_, true)) return;
        std::vector<request*> receives;
        for (std::size_t i = 0; i < requests_.size(); i += 2) receives.push_back(&requests_[i]);
        for (request& r : ack_receives_) receives.push_back(&r);
        std::erase_if(receives, [&](const request* r) { return !wire_.active(*r); });
        for (request* r : receives) wire_.cancel(*r);
        if (timed()) {
            acknowledgements_->abort = acknowledgement::of_failure(*failure_, name_, world_rank(wire_.rank()));
            for (std::size_t i = 0; i != peers(); ++i) {
                request sent{};
                try {
                    wire_.post_send(sent, reinterpret_cast<const std::byte*>(&acknowledgements_->abort),
                                    acknowledgements_->abort.bytes(), destination(i), ack_tag);
                } catch (const error&) {
                    // It is the first failure that is thrown; this peer will find out by its deadline.
                }
                wire_.abandon(sent);
            }
        }
        // What has begun to come cannot be cancelled; most of it will be here in a moment.
        const auto all_back = [&] {
            std::erase_if(receives, [&](request* r) {
                try {
                    return wire_.test(*r).complete;
                } catch (const error&) {
                    return true;
                }
            });
            return receives.empty();
        };
        detail::poll_until(all_back, detail::deadline_after(moment));
        for (auto* all : {&requests_, &ack_receives_, &ack_sends_}) {
            for (request& r : *all) wire_.abandon(r);
        }
        // The wire may still read and write them.
        detail::keep_until_exit(std::move(acknowledgements_));
    }

    std::size_t peers() const { return static_cast<std::size_t>(wire_.size() - 1); }
    std::size_t round_size() const { return 2 * peers(); }
    int world_rank(int r) const { return world_ranks_[static_cast<std::size_t>(r)]; }

    /// The ranks at distance i + 1 before and behind this one.
    int source(std::size_t i) const { return (wire_.rank() + wire_.size() - 1 - static_cast<int>(i)) % wire_.size(); }
    int destination(std::size_t i) const { return (wire_.rank() + 1 + static_cast<int>(i)) % wire_.size(); }

    // So few pieces at a time that something ends as long as bytes flow.
    static constexpr std::size_t in_flight = 8;
    static constexpr std::size_t operation_tags = 4;
    static constexpr std::size_t size_tags = 8191;
    static constexpr int ack_tag = 32767;
    static_assert(operation_tags * size_tags <= ack_tag);
    static constexpr std::chrono::milliseconds moment{100};

    Wire& wire_;
    std::string_view name_;
    std::size_t piece_;
    std::chrono::milliseconds timeout_;
    detail::call_log log_;
    std::vector<int> world_ranks_;                    // of this wire's ranks
    std::shared_ptr<detail::first_failure> failure_;  // of the family
    std::vector<request> requests_;                   // of each round, a receive and a send for each peer by turns
    std::shared_ptr<acknowledgements> acknowledgements_ = std::make_shared<acknowledgements>();
    std::vector<request> ack_receives_;  // by distance less 1, see source
    std::vector<request> ack_sends_;     // by distance less 1, see destination
    std::vector<bool> acknowledged_;     // likewise: whether the operation's own is on its way
    bool aborted_ = false;

    // The operation that runs, and how many have.
    detail::operation_in_call what_;
    std::size_t operations_ = 0;
    std::chrono::steady_clock::time_point deadline_;
};

}  // namespace zeropp
