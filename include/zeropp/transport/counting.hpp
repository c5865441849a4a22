#pragma once
/// \file
/// A transport that counts what it carries.

#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace zeropp {

/// What this rank has sent in the collectives of one name.
struct traffic {
    short_text primitive;
    std::uint64_t calls = 0;
    /// Bytes to other ranks of the same node, and to ranks of other nodes. What a rank keeps for itself is not counted.
    std::uint64_t bytes_inside = 0;
    std::uint64_t bytes_across = 0;
};

/// Counts the bytes that this rank sends through `Transport`, inside its node and across nodes, for each collective. An
/// all-gather counts as sending to every other rank directly. Its splits count into the same totals; copies and moves
/// keep them. Bytes are counted when an operation is enqueued.
///
/// `Topology` says where the nodes are in truth: it may differ from the topology that the collectives are told.
template <class Transport, topology Topology>
class counting {
public:
    /// Throws precondition_error unless the topology has as many ranks as the transport.
    counting(Transport inner, Topology nodes)
        : inner_(std::move(inner)),
          nodes_(std::move(nodes)),
          world_ranks_(static_cast<std::size_t>(inner_.size())),
          totals_(std::make_shared<std::vector<traffic>>()) {
        if (nodes_.size() != inner_.size()) {
            throw precondition_error("counting", "a topology of the transport's " + std::to_string(inner_.size()) + " ranks",
                                     "one of " + std::to_string(nodes_.size()));
        }
        std::iota(world_ranks_.begin(), world_ranks_.end(), 0);
    }

    int rank() const { return inner_.rank(); }
    int size() const { return inner_.size(); }

    template <execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        count(bytes);
        inner_.all_gather(exec, send, recv, bytes);
    }

    template <execution E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        count(bytes);
        inner_.all_to_all(exec, send, recv, bytes);
    }

    counting split(std::span<const int> members) {
        std::vector<int> world_ranks;
        for (const int m : members) world_ranks.push_back(world_ranks_[static_cast<std::size_t>(m)]);
        return counting(inner_.split(members), nodes_, std::move(world_ranks), totals_);
    }

    void begin(const collective_call& call, const std::string& problem) {
        begin_collective(inner_, call, problem);
        ++entry(call.primitive).calls;
    }

    /// One entry for each collective called so far; operations outside a collective are under "".
    const std::vector<traffic>& by_primitive() const { return *totals_; }

    /// The sum of all entries.
    traffic total() const {
        traffic sum{.primitive = "total"};
        for (const traffic& t : *totals_) {
            sum.calls += t.calls;
            sum.bytes_inside += t.bytes_inside;
            sum.bytes_across += t.bytes_across;
        }
        return sum;
    }

    /// Starts again from zero.
    void reset() { totals_->clear(); }

private:
    counting(Transport inner, Topology nodes, std::vector<int> world_ranks, std::shared_ptr<std::vector<traffic>> totals)
        : inner_(std::move(inner)), nodes_(std::move(nodes)), world_ranks_(std::move(world_ranks)), totals_(std::move(totals)) {}

    /// The entry of a collective, moved to the end: the last entry is the collective in progress.
    traffic& entry(std::string_view primitive) {
        for (std::size_t i = 0; i != totals_->size(); ++i) {
            if ((*totals_)[i].primitive == short_text(primitive)) {
                std::swap((*totals_)[i], totals_->back());
                return totals_->back();
            }
        }
        totals_->push_back({.primitive = primitive});
        return totals_->back();
    }

    void count(std::size_t bytes) {
        traffic& current = totals_->empty() ? entry("") : totals_->back();
        const int self = world_ranks_[static_cast<std::size_t>(rank())];
        for (const int peer : world_ranks_) {
            if (peer == self) continue;
            const bool inside = nodes_.group_of(peer) == nodes_.group_of(self);
            (inside ? current.bytes_inside : current.bytes_across) += bytes;
        }
    }

    Transport inner_;
    Topology nodes_;
    std::vector<int> world_ranks_;  // of this transport's ranks
    std::shared_ptr<std::vector<traffic>> totals_;
};

}  // namespace zeropp
