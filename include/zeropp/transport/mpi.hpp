#pragma once
/// \file
/// Ranks that are MPI processes.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/poll.hpp>
#include <zeropp/transport/transport.hpp>

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp {

/// A call to MPI that failed; `code()` is MPI's own.
class mpi_error : public error {
public:
    mpi_error(const std::string& call, int code) : error(call + ": " + text(code)), code_(code) {}

    int code() const { return code_; }

private:
    static std::string text(int code) {
        char buffer[MPI_MAX_ERROR_STRING] = {};
        int length = 0;
        if (MPI_Error_string(code, buffer, &length) != MPI_SUCCESS) return "MPI error " + std::to_string(code);
        return {buffer, static_cast<std::size_t>(length)};
    }

    int code_;
};

namespace detail {
inline void require_mpi(int code, const char* call) {
    if (code != MPI_SUCCESS) throw mpi_error(call, code);
}

/// Whether MPI says that it cannot work on device memory. Open MPI and its relatives announce the question, MPICH has it
/// since 4.0; others cannot be asked.
inline bool mpi_refuses_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000300)
    return MPIX_Query_cuda_support() == 0;
#else
    return false;
#endif
}
}  // namespace detail

/// Moves bytes in `Space` with MPI's nonblocking point-to-point calls: every peer is served at once, and messages travel
/// in pieces, of any size in all. A rank that waits long sleeps between questions to MPI, at most 250 us at a time, so
/// that ranks may share cores. Ranks that disagree about a size get an error where that is a matter of less than a
/// piece, 256 KiB, and wait for each other else, unless the transport has a timeout or is `checked`. (MPICH asks the
/// error handler of MPI_COMM_WORLD, or in newer versions of MPI_COMM_SELF, about the errors of requests: unless that is
/// MPI_ERRORS_RETURN, it ends the program there.) The transport must be destroyed before MPI_Finalize.
///
/// With a timeout (all ranks have one, or none has), an operation ends with a word from each peer: that it did the same,
/// and that MPI is done with all it sent. Ranks that did something else get precondition_error, where that shows before
/// the deadline. A rank that gives up tells its peers, which get the same timeout_error, or for another cause peer_error:
/// so no rank takes for data what a peer that has given up left in its memory.
///
/// After an error in an operation with a timeout, or an error of MPI's other than MPI_ERR_TRUNCATE without one, this
/// transport and all that are split from it or from what it was split from throw that first error again, and never free
/// their communicators: MPI_Comm_free is collective. Destruction does not block; MPI_Finalize may, and MPI_Abort is the
/// way to end then.
///
/// Memory after such an error: MPI may still read `send`, which may be changed and must not be given back; receives are
/// cancelled, but where the first bytes of a piece had come, MPI may still write to `recv`, which must neither be used
/// nor given back until the process ends.
///
/// In host memory (`mpi_transport`), on `host{}` any thread level will do. On a `host_queue`, which calls MPI from its
/// own thread, MPI must have been initialised with MPI_THREAD_MULTIPLE; otherwise operations throw precondition_error.
///
/// In device memory (`cuda_aware_mpi_transport`), operations wait for the stream, block the caller until the bytes have
/// crossed, and cannot be captured. Requires an MPI built with support for CUDA: making a transport throws
/// precondition_error where MPI says that it has none; `staged<mpi_transport>` works with any MPI.
template <class Space>
class basic_mpi_transport {
public:
    /// Uses `comm` itself, which must outlive the transport; no other traffic may use it meanwhile. Its error handler
    /// stays as it is.
    static basic_mpi_transport borrow(MPI_Comm comm, transport_options options = {}) {
        require_support();
        detail::require_timeout(name, options);
        return basic_mpi_transport(comm, false, options);
    }

    /// Uses a duplicate of `comm`, which errors leave as exceptions. Collective over `comm`, within the timeout.
    static basic_mpi_transport duplicate(MPI_Comm comm, transport_options options = {}) {
        require_support();
        detail::require_timeout(name, options);
        return basic_mpi_transport(copy_of(comm, options), true, options);
    }

    int rank() const { return state_->rank; }
    int size() const { return state_->size; }
    MPI_Comm native() const { return state_->comm; }

    /// So that errors name the collective. See begin_collective.
    void begin(const collective_call& call, const std::string& problem) {
        state_->log.begin(call.primitive);
        detail::require_no_problem(call, problem);
    }

    template <execution E>
    requires std::same_as<typename E::space, Space>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        in_turn(exec, [s = state_.get(), send, recv,
                       what = state_->log.next(detail::operation::all_gather, bytes)](const auto& on) {
            s->exchange(
                on, what, [=](int) { return send; }, recv);
        });
    }

    template <execution E>
    requires std::same_as<typename E::space, Space>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        in_turn(exec, [s = state_.get(), send, recv,
                       what = state_->log.next(detail::operation::all_to_all, bytes)](const auto& on) {
            s->exchange(
                on, what, [=](int peer) { return send + static_cast<std::size_t>(peer) * what.bytes; }, recv);
        });
    }

    /// Where there is a timeout, the ranks meet within it, before MPI_Comm_split, which MPI cannot be asked to end: a rank
    /// that dies between the two leaves the others waiting. No operation may be in flight on a queue then.
    basic_mpi_transport split(std::span<const int> members) {
        const auto self = std::find(members.begin(), members.end(), rank());
        const bool listed = self != members.end();
        const auto other = std::ranges::find_if(members, [&](int m) { return m < 0 || m >= size(); });
        const bool in_range = other == members.end();
        state_->meet(detail::operation::split);
        MPI_Comm comm = MPI_COMM_NULL;
        // A rank with a wrong list takes part before it throws, so that the others do not wait for it.
        detail::require_mpi(MPI_Comm_split(state_->comm, listed && in_range ? members.front() : MPI_UNDEFINED,
                                           static_cast<int>(self - members.begin()), &comm),
                            "MPI_Comm_split");
        if (!listed) {
            throw precondition_error(name, "a split list with rank " + std::to_string(rank()), "one without");
        }
        if (!in_range) {
            throw precondition_error(name, "a split list of ranks below " + std::to_string(size()),
                                     "one with " + std::to_string(*other));
        }
        basic_mpi_transport child(std::make_unique<state>(comm, true, *state_, members));
        if (static_cast<std::size_t>(child.size()) != members.size()) {
            throw precondition_error(name,
                                     "the same split list on each of its " + std::to_string(members.size()) + " ranks",
                                     "lists of " + std::to_string(child.size()) + " ranks that begin alike");
        }
        return child;
    }

private:
    static constexpr bool on_device = std::same_as<Space, device_space>;
    static constexpr const char* name = on_device ? "cuda_aware_mpi_transport" : "mpi_transport";

    struct state {
        MPI_Comm comm;
        bool owned;
        std::chrono::milliseconds timeout;
        int rank = 0;
        int size = 0;
        int thread_level = MPI_THREAD_SINGLE;
        detail::call_log log;
        std::vector<int> world_ranks;                    // of this transport's ranks
        std::shared_ptr<detail::first_failure> failure;  // of all transports split from one another
        std::vector<MPI_Request> requests;               // of each round, a receive and a send for each peer by turns

        /// What a rank tells each peer at the end of an operation, where there is a timeout: that MPI is done with what
        /// it sent, or that it has given up.
        struct word {
            detail::operation_in_call operation;
            enum class verdict : std::uint8_t { done, timed_out, failed } verdict = verdict::done;
            char cause[512] = {};  // of a failure, in words, cut where they are longer

            /// What is worth sending.
            int bytes() const {
                return static_cast<int>(verdict == verdict::done ? offsetof(word, cause) : sizeof(word));
            }
        };
        static_assert(std::is_trivially_copyable_v<word> && std::is_standard_layout_v<word>);

        /// Of one operation at a time.
        struct conversation {
            word mine;
            word last;                 // if this rank gives up
            std::vector<word> theirs;  // by distance less 1, see sender
        };
        std::unique_ptr<conversation> words = std::make_unique<conversation>();
        std::vector<MPI_Request> words_in;   // by distance less 1, see sender
        std::vector<MPI_Request> words_out;  // by distance less 1, see receiver
        std::vector<bool> told;              // likewise: whether the operation's word is on its way
        bool left = false;                   // the peers know that this rank has given up

        // The operation that runs.
        detail::operation_in_call what;
        std::chrono::steady_clock::time_point deadline;

        state(MPI_Comm c, bool own, transport_options options)
            : comm(c), owned(own), timeout(options.timeout), size(size_of(c)), world_ranks(detail::world_ranks(size)),
              failure(std::make_shared<detail::first_failure>()) {
            prepare();
        }

        /// A split of `members` from `parent`, whose communicator is `c`.
        state(MPI_Comm c, bool own, const state& parent, std::span<const int> members)
            : comm(c), owned(own), timeout(parent.timeout), size(size_of(c)), log(parent.log.split()),
              world_ranks(detail::world_ranks(parent.world_ranks, members)), failure(parent.failure) {
            prepare();
        }

        ~state() {
            int finalized = 0;
            MPI_Finalized(&finalized);
            if (owned && !finalized && !failure->any()) MPI_Comm_free(&comm);
        }

        state(const state&) = delete;
        state& operator=(const state&) = delete;

        static int size_of(MPI_Comm comm) {
            int size = 0;
            detail::require_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
            return size;
        }

        void prepare() {
            if (owned) detail::require_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
            detail::require_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
            detail::require_mpi(MPI_Query_thread(&thread_level), "MPI_Query_thread");
            requests.assign(in_flight * round_size(), MPI_REQUEST_NULL);
            if (!timed()) return;
            words->theirs.resize(peers());
            words_in.assign(peers(), MPI_REQUEST_NULL);
            words_out.assign(peers(), MPI_REQUEST_NULL);
            told.resize(peers());
        }

        /// Sends source(peer) to each peer and receives recv[peer * bytes ...] from it. This rank's own part is a copy
        /// on `exec`.
        template <class E, class Source>
        void exchange(const E& exec, const detail::operation_in_call& operation, Source source, std::byte* recv) {
            refuse_after_failure();
            const std::size_t bytes = operation.bytes;
            std::byte* own = recv + static_cast<std::size_t>(rank) * bytes;
            if (bytes != 0 && source(rank) != own) exec.copy(own, source(rank), bytes);
            carry(operation, source, recv);
        }

        /// Returns when all ranks have called it, where there is a timeout.
        void meet(detail::operation operation) {
            if (!timed()) return;
            refuse_after_failure();
            carry(
                log.next(operation, 0), [](int) -> const std::byte* { return nullptr; }, nullptr);
        }

        /// The part of `exchange` that is between ranks.
        template <class Source>
        void carry(const detail::operation_in_call& operation, Source source, std::byte* recv) {
            what = operation;
            deadline = detail::deadline_after(timeout);
            outcome all;
            try {
                move(source, recv, all);
            } catch (...) {
                failure->set(std::current_exception());
                leave();
                throw;
            }
            // All requests are complete, so that the ranks are in step and can go on whatever went wrong.
            detail::require_mpi(all.failure, "MPI_Test");
            const std::size_t expected = peers() * what.bytes;
            if (all.received != expected) {
                throw precondition_error(name, std::to_string(expected) + " bytes from the other ranks",
                                         std::to_string(all.received));
            }
        }

        /// What has become of the requests so far. A message that is too long is MPI's error; one that is too short is
        /// not, and would leave old bytes for new ones.
        struct outcome {
            int failure = MPI_SUCCESS;
            std::size_t received = 0;
        };

        template <class Source>
        void move(Source source, std::byte* recv, outcome& all) {
            const std::size_t pieces = ceil_div(what.bytes, piece);  // of each message; a round is one for every peer
            if (timed()) listen();
            for (std::size_t p = 0; p != pieces; ++p) {
                if (p >= in_flight) finish(round(p), all);
                begin(round(p), source, recv, p * piece);
            }
            const std::size_t oldest = pieces - std::min(pieces, in_flight);
            if (timed()) tell(oldest, pieces);
            for (std::size_t p = oldest; p != pieces; ++p) finish(round(p), all);
            if (timed()) hear();
        }

        /// The requests of piece `p`, and of those in_flight before and after it.
        std::span<MPI_Request> round(std::size_t p) {
            return {requests.data() + p % in_flight * round_size(), round_size()};
        }

        /// Starts to move the piece behind the first `done` bytes of every peer's message.
        template <class Source>
        void begin(std::span<MPI_Request> round, Source source, std::byte* recv, std::size_t done) {
            const int count = static_cast<int>(std::min(piece, what.bytes - done));
            // Ranks that disagree about the size must not take a piece of one message for one of another.
            const int tag = static_cast<int>(ceil_div(what.bytes, piece) % word_tag);
            MPI_Request* request = round.data();
            // Every rank starts with another peer, so that no receiver is everybody's first.
            for (std::size_t i = 0; i != peers(); ++i) {
                std::byte* in = recv + static_cast<std::size_t>(sender(i)) * what.bytes + done;
                detail::require_mpi(MPI_Irecv(in, count, MPI_BYTE, sender(i), tag, comm, request++), "MPI_Irecv");
                const std::byte* out = source(receiver(i)) + done;
                detail::require_mpi(MPI_Isend(out, count, MPI_BYTE, receiver(i), tag, comm, request++), "MPI_Isend");
            }
        }

        /// Waits for all requests of a round, one by one: after an error the rest still uses the caller's memory, and
        /// Open MPI 4.1's MPI_Waitall hangs.
        void finish(std::span<MPI_Request> round, outcome& all) {
            for (std::size_t i = 0; i != round.size(); ++i) {
                MPI_Status status;
                int code = MPI_SUCCESS;
                // Not MPI_Wait, which may never leave the processor to the ranks that it waits for.
                const auto done = [&] {
                    int completed = 0;
                    code = MPI_Test(&round[i], &completed, &status);
                    if (completed != 0 || code != MPI_SUCCESS) return true;
                    heed();
                    return false;
                };
                if (!detail::poll_until(done, deadline)) {
                    time_out(unfinished(round), {i % 2 == 0 ? sender(i / 2) : receiver(i / 2)});
                }
                // The one error after which the ranks are in step: all requests complete as they would without it.
                int error_class = MPI_SUCCESS;
                MPI_Error_class(code, &error_class);
                if (error_class != MPI_ERR_TRUNCATE) detail::require_mpi(code, "MPI_Test");
                round[i] = MPI_REQUEST_NULL;
                int count = 0;
                if (code == MPI_SUCCESS && i % 2 == 0) code = MPI_Get_count(&status, MPI_BYTE, &count);
                if (all.failure == MPI_SUCCESS) all.failure = code;
                all.received += static_cast<std::size_t>(count);
            }
        }

        // The words at the end of an operation. They have a tag of their own, and each operation takes one from each
        // peer; behind its last one, a rank that gives up sends another.

        bool timed() const { return timeout != std::chrono::milliseconds::zero(); }

        /// Makes ready to hear the peers' words.
        void listen() {
            words->mine.operation = what;
            std::fill(told.begin(), told.end(), false);
            for (std::size_t i = 0; i != peers(); ++i) {
                detail::require_mpi(
                    MPI_Irecv(&words->theirs[i], sizeof(word), MPI_BYTE, sender(i), word_tag, comm, &words_in[i]),
                    "MPI_Irecv");
            }
        }

        /// Throws if the word of a peer that has spoken is not that it did the same.
        void heed() {
            while (timed()) {
                int i = MPI_UNDEFINED;
                int completed = 0;
                detail::require_mpi(
                    MPI_Testany(static_cast<int>(peers()), words_in.data(), &i, &completed, MPI_STATUS_IGNORE),
                    "MPI_Testany");
                if (completed == 0 || i == MPI_UNDEFINED) return;
                const word& heard = words->theirs[static_cast<std::size_t>(i)];
                if (heard.verdict == word::verdict::timed_out) throw timeout_error(heard.cause);
                if (heard.verdict == word::verdict::failed) throw peer_error(heard.cause);
                if (heard.operation != what) {
                    const auto on = [&](int r) {
                        return " on rank " + std::to_string(world_ranks[static_cast<std::size_t>(r)]);
                    };
                    throw precondition_error(name, "the same operation on every rank",
                                             what.text() + on(rank) + ", " + heard.operation.text() +
                                                 on(sender(static_cast<std::size_t>(i))));
                }
            }
        }

        /// Gives each peer this rank's word, as soon as MPI is done with what it sends to that peer: in pieces from
        /// `oldest`. A peer that takes nothing does not keep the others waiting.
        void tell(std::size_t oldest, std::size_t pieces) {
            const auto done = [&] {
                bool all = true;
                for (std::size_t i = 0; i != peers(); ++i) {
                    if (!told[i] && taken(i, oldest, pieces)) {
                        send_word(i);
                        told[i] = true;
                    }
                    all = all && told[i];
                }
                if (!all) heed();
                return all;
            };
            if (detail::poll_until(done, deadline)) return;
            std::vector<int> behind;
            for (std::size_t p = oldest; p != pieces && behind.empty(); ++p) behind = unfinished(round(p));
            time_out(behind, untold());
        }

        /// Whether all pieces from `oldest` to the i-th receiver are out of this rank's memory.
        bool taken(std::size_t i, std::size_t oldest, std::size_t pieces) {
            for (std::size_t p = oldest; p != pieces; ++p) {
                if (!complete(round(p)[2 * i + 1])) return false;
            }
            return true;
        }

        void send_word(std::size_t i) {
            detail::require_mpi(
                MPI_Isend(&words->mine, words->mine.bytes(), MPI_BYTE, receiver(i), word_tag, comm, &words_out[i]),
                "MPI_Isend");
        }

        /// Waits until all peers have given their words, and have got this rank's.
        void hear() {
            const auto active = [](MPI_Request r) { return r != MPI_REQUEST_NULL; };
            const auto done = [&] {
                heed();
                for (MPI_Request& r : words_out) complete(r);
                return std::none_of(words_in.begin(), words_in.end(), active) &&
                       std::none_of(words_out.begin(), words_out.end(), active);
            };
            if (detail::poll_until(done, deadline)) return;
            std::vector<int> silent;
            for (std::size_t i = 0; i != peers(); ++i) {
                if (active(words_in[i])) silent.push_back(sender(i));
                if (active(words_out[i])) silent.push_back(receiver(i));
            }
            time_out(silent, {});
        }

        // Failure.

        /// Whether a request is complete; throws if it failed.
        static bool complete(MPI_Request& request) {
            int completed = 0;
            detail::require_mpi(MPI_Test(&request, &completed, MPI_STATUS_IGNORE), "MPI_Test");
            return completed != 0;
        }

        /// The peers of requests that are not complete.
        std::vector<int> unfinished(std::span<MPI_Request> round) {
            std::vector<int> ranks;
            for (std::size_t i = 0; i != peers(); ++i) {
                if (!complete(round[2 * i])) ranks.push_back(sender(i));
                if (!complete(round[2 * i + 1])) ranks.push_back(receiver(i));
            }
            return ranks;
        }

        std::vector<int> untold() const {
            std::vector<int> ranks;
            for (std::size_t i = 0; i != peers(); ++i) {
                if (!told[i]) ranks.push_back(receiver(i));
            }
            return ranks;
        }

        /// Throws that `missing` were not heard from, or if they have been in the last moment, `waited_for`. What a peer
        /// says comes first: it may have given up for the true cause, and for that have sent nothing.
        [[noreturn]] void time_out(std::vector<int> missing, std::vector<int> waited_for) {
            heed();
            if (missing.empty()) missing = std::move(waited_for);
            std::sort(missing.begin(), missing.end());
            missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
            throw detail::timed_out(name, what, timeout, detail::world_ranks(world_ranks, missing));
        }

        /// Where a transport of the family has failed, throws the first failure again. Peers that are about to do what
        /// this rank refuses need not wait for it.
        void refuse_after_failure() {
            if (!failure->any()) return;
            leave();
            failure->rethrow();
        }

        /// Takes back from MPI what it gives back, and tells the peers that this rank has given up.
        void leave() {
            if (std::exchange(left, true)) return;
            const auto active = [](MPI_Request r) { return r != MPI_REQUEST_NULL; };
            std::vector<MPI_Request*> receives;
            for (std::size_t i = 0; i < requests.size(); i += 2) receives.push_back(&requests[i]);
            for (MPI_Request& r : words_in) receives.push_back(&r);
            std::erase_if(receives, [&](const MPI_Request* r) { return !active(*r); });
            for (MPI_Request* r : receives) MPI_Cancel(r);
            if (timed()) {
                set_last_words();
                for (std::size_t i = 0; i != peers(); ++i) {
                    MPI_Request sent = MPI_REQUEST_NULL;
                    const int code =
                        MPI_Isend(&words->last, words->last.bytes(), MPI_BYTE, receiver(i), word_tag, comm, &sent);
                    if (code == MPI_SUCCESS && active(sent)) MPI_Request_free(&sent);
                }
            }
            // What has begun to come cannot be cancelled; most of it will be here in a moment.
            const auto all_back = [&] {
                std::erase_if(receives, [](MPI_Request* r) {
                    int completed = 0;
                    return MPI_Test(r, &completed, MPI_STATUS_IGNORE) != MPI_SUCCESS || completed != 0;
                });
                return receives.empty();
            };
            detail::poll_until(all_back, detail::deadline_after(moment));
            for (auto* all : {&requests, &words_in, &words_out}) {
                for (MPI_Request& r : *all) {
                    if (active(r)) MPI_Request_free(&r);
                }
            }
            // MPI may still read and write the words: they stay for good.
            static_cast<void>(words.release());
        }

        /// A cause that came from a peer goes on as it came.
        void set_last_words() {
            std::string cause;
            try {
                failure->rethrow();
            } catch (const timeout_error& e) {
                words->last.verdict = word::verdict::timed_out;
                cause = e.what();
            } catch (const peer_error& e) {
                words->last.verdict = word::verdict::failed;
                cause = e.what();
            } catch (const std::exception& e) {
                words->last.verdict = word::verdict::failed;
                cause = std::string(name) + ": rank " + std::to_string(world_ranks[static_cast<std::size_t>(rank)]) +
                        " failed: " + e.what();
            }
            cause.copy(words->last.cause, sizeof(word::cause) - 1);
        }

        std::size_t peers() const { return static_cast<std::size_t>(size - 1); }

        /// The ranks at distance i + 1 before and behind this one.
        int sender(std::size_t i) const { return (rank + size - 1 - static_cast<int>(i)) % size; }
        int receiver(std::size_t i) const { return (rank + 1 + static_cast<int>(i)) % size; }

        /// A receive and a send for each peer.
        std::size_t round_size() const { return 2 * peers(); }

        // A wait that sees no end for a while sleeps; ranks that share memory move bytes only while both are awake. Host
        // memory travels in pieces so small, and so few at a time, that something ends as long as bytes flow. A device
        // moves its memory by itself, and a piece is what MPI's int counts can say.
        static constexpr std::size_t piece = std::size_t{1} << (on_device ? 30 : 18);
        static constexpr std::size_t in_flight = 8;
        // MPI promises tags up to 32767, and pieces take those below.
        static constexpr int word_tag = 32767;
        static constexpr std::chrono::milliseconds moment{100};
    };

    basic_mpi_transport(MPI_Comm comm, bool owned, transport_options options)
        : basic_mpi_transport(std::make_unique<state>(comm, owned, options)) {}

    explicit basic_mpi_transport(std::unique_ptr<state> s) : state_(std::move(s)) {}

    static MPI_Comm copy_of(MPI_Comm comm, const transport_options& options) {
        // Not every MPI has MPI_Comm_idup: SimGrid's has not.
        if (options.timeout == std::chrono::milliseconds::zero()) {
            MPI_Comm copy = MPI_COMM_NULL;
            detail::require_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
            return copy;
        }
        // MPI writes to it when all ranks have come, be that after the deadline.
        auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
        MPI_Request request = MPI_REQUEST_NULL;
        detail::require_mpi(MPI_Comm_idup(comm, copy.get(), &request), "MPI_Comm_idup");
        int code = MPI_SUCCESS;
        const auto done = [&] {
            int completed = 0;
            code = MPI_Test(&request, &completed, MPI_STATUS_IGNORE);
            return completed != 0 || code != MPI_SUCCESS;
        };
        if (!detail::poll_until(done, detail::deadline_after(options.timeout))) {
            static_cast<void>(copy.release());
            throw timeout_error(std::string(name) + ": timeout of " + std::to_string(options.timeout.count()) +
                                " ms in MPI_Comm_idup: not heard from all ranks");
        }
        detail::require_mpi(code, "MPI_Comm_idup");
        return *copy;
    }

    static void require_support() {
        if (on_device && detail::mpi_refuses_device_memory()) {
            throw precondition_error(name, "an MPI with support for CUDA (staged<mpi_transport> works with any)",
                                     "one that says it has none");
        }
    }

    /// Host executions run the work in their turn; a stream is waited for, since MPI knows nothing of streams.
    template <class E, class Work>
    void in_turn(const E& exec, Work work) const {
        if constexpr (on_device) {
            exec.wait();
            work(exec);
        } else {
            require_threads<E>();
            exec.enqueue([work] { work(host{}); });
        }
    }

    template <class E>
    void require_threads() const {
        if constexpr (!std::same_as<E, host>) {
            if (state_->thread_level != MPI_THREAD_MULTIPLE) {
                throw precondition_error(name,
                                         "MPI initialised with MPI_THREAD_MULTIPLE for an execution on another thread",
                                         "thread level " + std::to_string(state_->thread_level));
            }
        }
    }

    template <class S>
    friend two_level shared_memory_nodes(const basic_mpi_transport<S>& transport);

    std::unique_ptr<state> state_;
};

/// Ranks that exchange host memory.
using mpi_transport = basic_mpi_transport<host_space>;
/// Ranks that exchange device memory, through an MPI that can.
using cuda_aware_mpi_transport = basic_mpi_transport<device_space>;

/// The nodes of `transport`'s ranks as MPI sees them: ranks that share memory are one node. Collective. Throws
/// precondition_error that says which node has how many ranks unless all have the same number. The ranks meet within the
/// timeout, as for a split.
template <class Space>
two_level shared_memory_nodes(const basic_mpi_transport<Space>& transport) {
    transport.state_->meet(detail::operation::split);
    MPI_Comm node = MPI_COMM_NULL;
    detail::require_mpi(
        MPI_Comm_split_type(transport.native(), MPI_COMM_TYPE_SHARED, transport.rank(), MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
    int lowest_rank = transport.rank();
    std::vector<int> node_of_rank(static_cast<std::size_t>(transport.size()));
    const int named = MPI_Allreduce(MPI_IN_PLACE, &lowest_rank, 1, MPI_INT, MPI_MIN, node);
    MPI_Comm_free(&node);
    detail::require_mpi(named, "MPI_Allreduce");
    detail::require_mpi(MPI_Allgather(&lowest_rank, 1, MPI_INT, node_of_rank.data(), 1, MPI_INT, transport.native()),
                        "MPI_Allgather");
    return two_level(std::span<const int>(node_of_rank));
}

}  // namespace zeropp
