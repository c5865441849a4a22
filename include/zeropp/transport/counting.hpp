#pragma once
/// \file
/// A transport that counts the bytes it carries.

#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// Counts of one collective: this rank's calls, and the bytes that this rank sent in these calls.
struct traffic {
    /// Name of the collective.
    short_text primitive;
    /// Number of calls.
    std::uint64_t calls = 0;
    /// Number of bytes sent to other ranks of this rank's node.
    std::uint64_t intra_node_bytes = 0;
    /// Number of bytes sent to other nodes; if the topology has three levels, to other nodes of this rank's site.
    std::uint64_t inter_node_bytes = 0;
    /// Number of bytes sent to other sites.
    std::uint64_t inter_site_bytes = 0;
};

/// A transport that counts the bytes that this rank sends through `Transport` along each level of a topology, for each
/// collective. Bytes count when an operation is enqueued. An all-gather counts as one message to each other rank. So
/// does a broadcast on the ranks that send, its roots; on other ranks it counts as no message. Splits, survivors'
/// transports and copies share the totals.
///
/// `Topology` describes the real nodes; the collectives may use another topology.
template <class Transport, topology Topology>
class counting : public adaptor<counting<Transport, Topology>, Transport> {
    using base = adaptor<counting, Transport>;

public:
    /// Wraps `inner`; `nodes` describes the real nodes. Throws precondition_error unless the topology has as many ranks
    /// as the transport. `inner` is a reference, so that the order in which a compiler evaluates the arguments does not
    /// matter.
    counting(Transport&& inner, Topology nodes)
        : counting(std::move(inner), std::move(nodes), {}, std::make_shared<totals>()) {
        world_ranks_ = detail::world_ranks(this->size());
        if (nodes_.size() != this->size()) {
            throw precondition_error("counting",
                                     "a topology of the transport's " + std::to_string(this->size()) + " ranks",
                                     "one of " + std::to_string(nodes_.size()));
        }
    }

    /// Wraps a copy of `inner`.
    counting(const Transport& inner, Topology nodes)
        requires std::copy_constructible<Transport>
        : counting(Transport(inner), std::move(nodes)) {}

    template <execution E>
    void move(const E& exec, const operation& what, const std::byte* send, std::byte* recv) {
        if (what.sends(this->rank())) count(what.bytes);
        base::move(exec, what, send, recv);
    }

    /// Adds 1 to the calls of the collective `call.primitive`. Operations before the next collective count for it.
    void begin(const collective_call& call, const std::string& problem) {
        base::begin(call, problem);
        ++totals_->enter(call.primitive).calls;
    }

    /// Counts of each collective, in order of first calls. An operation counts for the last collective that began, or
    /// for "" if none has begun.
    const std::vector<traffic>& by_primitive() const { return totals_->entries; }

    /// Sums of the counts of all collectives, under the name "total".
    traffic total() const {
        traffic sum{.primitive = "total"};
        for (const traffic& t : totals_->entries) {
            sum.calls += t.calls;
            sum.intra_node_bytes += t.intra_node_bytes;
            sum.inter_node_bytes += t.inter_node_bytes;
            sum.inter_site_bytes += t.inter_site_bytes;
        }
        return sum;
    }

    /// Removes the counts of all collectives, also from splits and copies.
    void reset() { *totals_ = totals(); }

private:
    struct totals {
        std::vector<traffic> entries;
        std::size_t current = 0;  // index in `entries` of the collective that began last

        /// Makes the entry of the collective `primitive` the current entry, and returns it.
        traffic& enter(const short_text& primitive) {
            current = 0;
            while (current != entries.size() && entries[current].primitive != primitive) ++current;
            if (current == entries.size()) entries.push_back({.primitive = primitive});
            return entries[current];
        }
    };

    counting(Transport inner, Topology nodes, std::vector<int> world_ranks, std::shared_ptr<totals> shared)
        : base(std::move(inner)), nodes_(std::move(nodes)), world_ranks_(std::move(world_ranks)),
          totals_(std::move(shared)) {}

    friend base;
    counting around(Transport next, std::span<const int> members) {
        return {std::move(next), nodes_, detail::world_ranks(world_ranks_, members), totals_};
    }

    void count(std::size_t bytes) {
        traffic& current = totals_->entries.empty() ? totals_->enter("") : totals_->entries[totals_->current];
        const int self = world_ranks_[static_cast<std::size_t>(this->rank())];
        for (const int peer : world_ranks_) {
            if (peer == self) continue;
            const int level = level_between(nodes_, peer, self);
            (level == 0   ? current.intra_node_bytes
             : level == 1 ? current.inter_node_bytes
                          : current.inter_site_bytes) += bytes;
        }
    }

    Topology nodes_;
    std::vector<int> world_ranks_;  // [r]: world rank of this transport's rank r
    std::shared_ptr<totals> totals_;
};

}  // namespace zeropp
