#pragma once
/// \file
/// A transport that detects changed bytes.

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/transport.hpp>

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// A transport that moves bytes through `Transport`, and then a checksum of each message (XXH3, 64 bits). A checksum
/// covers the message's bytes, operation, sender and receiver, so it detects changed, misplaced and older messages. If
/// a message is wrong, every rank throws the same integrity_error, which names the collective and the world ranks of
/// sender and receiver. The transport can go on after the error.
///
/// Two small operations follow each operation: an all-to-all of checksums, and an all-gather of verdicts, each
/// receiver's finding. Together they move `overhead_bytes` bytes from every rank to every other rank. Sender and
/// receiver read each message once more; nothing is copied or allocated. A rank's message to itself is not checked. If
/// a verdict changes on its way, only the verdict's receiver throws. Ranks outside a split do not learn of errors in
/// the split. In both cases the caller must release the ranks that wait for the ranks that threw.
///
/// Decorators around this one see only the data; `Transport` also sees checksums and verdicts. Copies stand for the
/// same rank. Moves host memory; `staged<checksummed<mpi_transport>>` checks messages between GPUs.
template <class Transport>
class checksummed : public adaptor<checksummed<Transport>, Transport> {
    using base = adaptor<checksummed, Transport>;

    /// A rank's finding about the messages that it received in one operation.
    struct verdict {
        std::int64_t source = nobody;  // lowest rank that sent a changed message; `nobody`: no rank
        std::uint64_t sent = 0;        // checksum of the changed message, by its sender
        std::uint64_t arrived = 0;     // checksum of the changed message, by its receiver
        std::uint64_t seal = 0;        // checksum of operation, rank, `source`, `sent` and `arrived`

        static constexpr std::int64_t nobody = -1;
    };

public:
    /// Number of bytes that checksums and verdicts add to an operation, from each rank to each other rank.
    static constexpr std::size_t overhead_bytes = sizeof(std::uint64_t) + sizeof(verdict);

    explicit checksummed(Transport inner)
        : base(std::move(inner)), state_(std::make_shared<state>(this->rank(), detail::world_ranks(this->size()),
                                                                 std::make_shared<short_text>())) {}

    /// Enqueues the operation `what`, then the exchanges of checksums and verdicts. Calls the wrapped transport on the
    /// calling thread, so that the wrapped transport counts and refuses operations there.
    template <host_execution E>
    void move(const E& exec, const operation& what, const std::byte* send, std::byte* recv) {
        if (this->size() == 1 || what.bytes == 0) return base::move(exec, what, send, recv);
        state* const s = state_.get();
        const std::uint64_t number = s->operations++;
        if (what.sends(this->rank())) exec.enqueue([=] { s->sign(number, what, send); });
        base::move(exec, what, send, recv);
        this->inner().all_to_all(exec, reinterpret_cast<const std::byte*>(s->sent.data()),
                                 reinterpret_cast<std::byte*>(s->announced.data()), sizeof(std::uint64_t));
        exec.enqueue([=] { s->verify(number, what, recv); });
        this->inner().all_gather(exec, reinterpret_cast<const std::byte*>(&s->verdicts[s->rank]),
                                 reinterpret_cast<std::byte*>(s->verdicts.data()), sizeof(verdict));
        exec.enqueue([=, primitive = *s->collective] { s->judge(number, what, primitive); });
    }

    shrunk<checksummed> shrink(std::span<const int> excluded = {})
        requires shrinkable_transport<Transport>
    {
        auto [next, survivors] = this->inner().shrink(excluded);
        return {
            checksummed(std::move(next), detail::world_ranks(static_cast<int>(survivors.size())), state_->collective),
            survivors};
    }

    /// Notes the collective's name for errors, see begin_collective.
    void begin(const collective_call& call, const std::string& problem) {
        base::begin(call, problem);
        *state_->collective = call.primitive;
    }

private:
    /// Memory that operations use when they run, which may be after `move` has returned.
    struct state {
        state(int own_rank, std::vector<int> ranks, std::shared_ptr<short_text> name)
            : rank(static_cast<std::size_t>(own_rank)), world_ranks(std::move(ranks)), collective(std::move(name)),
              sent(world_ranks.size()), announced(world_ranks.size()), verdicts(world_ranks.size()) {}

        std::size_t rank;
        std::vector<int> world_ranks;            // [r]: world rank of this transport's rank r
        std::shared_ptr<short_text> collective;  // name of the last collective; splits and survivors share it
        std::uint64_t operations = 0;
        std::vector<std::uint64_t> sent;       // [r]: checksum of this rank's message to rank r
        std::vector<std::uint64_t> announced;  // [r]: checksum that rank r sent of its message to this rank
        std::vector<verdict> verdicts;         // [r]: verdict of rank r

        int world_rank(std::size_t r) const { return world_ranks[r]; }

        /// Stores in `sent` the checksums of this rank's messages to the other ranks, for operation `number`.
        void sign(std::uint64_t number, const operation& what, const std::byte* send) {
            const bool one_for_all = what.kind != operation::all_to_all;
            std::uint64_t contents = one_for_all ? XXH3_64bits(send, what.bytes) : 0;
            for (std::size_t to = 0; to != sent.size(); ++to) {
                if (to == rank) continue;
                if (!one_for_all) contents = XXH3_64bits(what.sent_to(static_cast<int>(to), send), what.bytes);
                sent[to] = checksum(number, rank, to, contents);
            }
        }

        /// Compares the messages from the other ranks with the checksums that their senders announced. Stores this
        /// rank's finding in `verdicts`.
        void verify(std::uint64_t number, const operation& what, const std::byte* recv) {
            verdict mine;
            for (std::size_t from = 0; from != sent.size() && mine.source == verdict::nobody; ++from) {
                if (from == rank || !what.sends(static_cast<int>(from))) continue;
                const std::uint64_t contents = XXH3_64bits(recv + from * what.bytes, what.bytes);
                const std::uint64_t arrived = checksum(number, from, rank, contents);
                if (arrived != announced[from]) {
                    mine = {.source = static_cast<std::int64_t>(from), .sent = announced[from], .arrived = arrived};
                }
            }
            mine.seal = seal(number, rank, mine);
            verdicts[rank] = mine;
        }

        /// Throws integrity_error with all ranks' findings if a rank found a changed message, or if a verdict has
        /// changed.
        void judge(std::uint64_t number, const operation& what, const short_text& primitive) const {
            std::string found;
            int source = 0;
            int destination = 0;
            const auto add = [&](const char* changed, int from, int to, std::uint64_t expected, std::uint64_t given) {
                if (found.empty()) {
                    source = from;
                    destination = to;
                }
                found += std::string(found.empty() ? "" : "; ") + "expected the " + changed + " of rank " +
                         std::to_string(from) + " to rank " + std::to_string(to) + " to have checksum " +
                         hexadecimal(expected) + ", given one of " + hexadecimal(given);
            };
            for (std::size_t r = 0; r != verdicts.size(); ++r) {
                const verdict& v = verdicts[r];
                const std::uint64_t expected_seal = seal(number, r, v);
                const bool names_a_rank = v.source == verdict::nobody ||
                                          (v.source >= 0 && static_cast<std::size_t>(v.source) < world_ranks.size());
                if (v.seal != expected_seal || !names_a_rank) {
                    add("verdict", world_rank(r), world_rank(rank), v.seal, expected_seal);
                } else if (v.source != verdict::nobody) {
                    add("message", world_rank(static_cast<std::size_t>(v.source)), world_rank(r), v.sent, v.arrived);
                }
            }
            if (found.empty()) return;
            const std::string where = primitive == short_text() ? "" : primitive.str() + ": ";
            throw integrity_error(where + what.text() + ": " + found, source, destination);
        }

        /// Checksum of a message: of the operation's `number`, sender, receiver and `contents`, the hash of the
        /// message's bytes.
        static std::uint64_t checksum(std::uint64_t number, std::size_t from, std::size_t to, std::uint64_t contents) {
            const std::uint64_t message[] = {number, from, to, contents};
            return XXH3_64bits(message, sizeof message);
        }

        static std::uint64_t seal(std::uint64_t number, std::size_t of_rank, const verdict& v) {
            const std::uint64_t sealed[] = {number, of_rank, static_cast<std::uint64_t>(v.source), v.sent, v.arrived};
            return XXH3_64bits(sealed, sizeof sealed);
        }

        static std::string hexadecimal(std::uint64_t number) {
            char digits[17];
            std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
            return digits;
        }
    };

    checksummed(Transport inner, std::vector<int> world_ranks, std::shared_ptr<short_text> collective)
        : base(std::move(inner)),
          state_(std::make_shared<state>(this->rank(), std::move(world_ranks), std::move(collective))) {}

    friend base;
    checksummed around(Transport next, std::span<const int> members) {
        return {std::move(next), detail::world_ranks(state_->world_ranks, members), state_->collective};
    }

    std::shared_ptr<state> state_;
};

}  // namespace zeropp
