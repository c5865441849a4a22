#pragma once
/// \file
/// A topology joined to a transport.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/counterparts.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// Consecutive slots of messages that a rank sums and sends on, in a round of column_rounds.
struct slot_range {
    int first;
    int count;
    int round = 0;
};

/// Owns the transports that the collectives of one topology use: all ranks, and for each level this rank's peers, the
/// ranks that differ from it in that level's coordinate only. Moves messages along one level at a time. Messages are in
/// the order of slots, in which a peer's messages, with all that it has gathered, are contiguous.
///
/// If groups differ in size, ranks of smaller groups also serve the columns that only larger groups have
/// (column_rounds): they move those in further rounds.
///
/// Runs one collective at a time, in the same order on every rank. For collectives side by side (prefetching weights
/// while gradients are reduced), make one communicator for each, from its own split of the transport.
template <topology Topology, class Transport>
class communicator {
public:
    /// Levels of the topology.
    static constexpr int levels = Topology::levels;

    /// Collective over `world`. Throws precondition_error unless the topology has as many ranks as the transport, and
    /// if the program was compiled with flags of -ffast-math.
    ///
    /// `world` is a reference, so that `communicator(flat(world.size()), std::move(world))` does not depend on the
    /// order in which a compiler evaluates arguments. If a split throws, `world` keeps the transport.
    communicator(Topology topology, Transport&& world) : topology_(std::move(topology)), world_(std::move(world)) {
        if (topology_.size() != world_.size()) {
            throw precondition_error("communicator",
                                     "a topology of the transport's " + std::to_string(world_.size()) + " ranks",
                                     "one of " + std::to_string(topology_.size()));
        }
        if (!ieee_arithmetic()) {
            throw precondition_error("communicator", "IEEE arithmetic",
                                     "a program compiled with -fno-signed-zeros, -freciprocal-math, "
                                     "-funsafe-math-optimizations or -fno-honor-nans");
        }
        if (slots_are_ranks(topology_)) return;
        try {
            for (int l = 0; l != levels; ++l) {
                if (extent(topology_, l) == 1) continue;
                if (l == 1 && slots_beyond(topology_, 1) == 1) {
                    split_columns();
                } else {
                    of_level(l).push_back(world_.split(peer_ranks(topology_, l, rank())));
                }
            }
        } catch (...) {
            world = std::move(world_);
            throw;
        }
    }

    /// Collective. Uses a copy of `world`.
    communicator(Topology topology, const Transport& world)
        requires std::copy_constructible<Transport>
        : communicator(std::move(topology), Transport(world)) {}

    /// Communicator of the survivors of a failure, each on its node, and their ranks here, as in shrinkable_transport.
    /// `excluded` are ranks to leave out. If another rank dies while the survivors connect, they shrink again;
    /// where excluded ranks must be named (NCCL), it throws timeout_error: call again with all dead ranks.
    shrunk<communicator> shrink(std::span<const int> excluded = {})
        requires shrinkable_transport<Transport> && requires(const Topology& t, std::span<const int> survivors) {
            { t.shrink(survivors) } -> std::same_as<Topology>;
        }
    {
        return detail::connect<communicator>(world_.shrink(excluded), [&](shrunk<Transport>& left) {
            return communicator(topology_.shrink(left.survivors), std::move(left.next));
        });
    }

    const Topology& topology() const { return topology_; }
    int rank() const { return world_.rank(); }
    int size() const { return world_.size(); }

    /// This rank's group, its index in the group, and the number of ranks there.
    int group_id() const { return topology_.group_of(rank()); }
    int index() const { return topology_.index_of(rank()); }
    int group_size() const { return topology_.group_size(group_id()); }

    /// Transport of all ranks.
    Transport& world() { return world_; }
    /// Transport of this rank's peers along `level`, by coordinate. Requires `has_hop` along it. In a later round of
    /// column_rounds, of the ranks that serve the same column, if this rank serves one.
    Transport& peers(int level, int round = 0) {
        auto& by_round = of_level(level);
        return by_round.empty() ? world_ : by_round[static_cast<std::size_t>(round)];
    }

    /// Rounds in which this rank's group serves all columns.
    column_rounds rounds() const { return rounds_of(topology_, group_id()); }
    /// Calls f(round, column) for each column that this rank serves, its own first.
    template <class F>
    void for_each_column(F f) const {
        const column_rounds all = rounds();
        for (int j = 0; j != all.served(index()); ++j) f(j, all.column(j, index()));
    }

    /// This rank's message among `messages`, one of each slot.
    std::byte* own(std::byte* messages, std::size_t bytes) const {
        return messages + at(slot_of(topology_, rank()), bytes);
    }

    /// Gathers along `level`, of messages of `bytes` bytes. `messages` has one for each slot. Before, this rank has the
    /// messages that the gathers of all later levels have brought, or its own; afterwards, its peers' too. Gathers from
    /// the last level to level 0 bring all messages to all ranks.
    template <execution E>
    void gather(int level, const E& exec, std::byte* messages, std::size_t bytes) {
        if (level != 0) {
            for_each_column([&](int round, int column) {
                gather_column(level, round, exec, own(messages, bytes),
                              messages + at(column * topology_.groups(), bytes), bytes);
            });
        } else {
            gather_columns(exec, rounds(), messages, at(topology_.groups(), bytes),
                           [](int, std::byte* place) { return place; });
        }
    }

    /// Level 0 of `gather`, of columns of `bytes` bytes, in rounds `all`. sent(round, place) is the address of the
    /// column that this rank sends, which has its place there.
    template <execution E, class Sent>
    void gather_columns(const E& exec, const column_rounds& all, std::byte* columns, std::size_t bytes, Sent sent) {
        if (all.ranks == 1) return;
        for (int j = 0; j != all.count(); ++j) {
            std::byte* const place = columns + at(all.column(j, index()), bytes);
            peers(0).all_gather(exec, sent(j, place), columns + at(all.first(j), bytes), bytes);
        }
    }

    /// A later level of `gather`, of one column that this rank serves: `column` has a message for each group, and `own`
    /// is this rank's, there or elsewhere.
    template <execution E>
    void gather_column(int level, int round, const E& exec, const std::byte* own, std::byte* column,
                       std::size_t bytes) {
        const int apart = slots_beyond(topology_, level), several = apart * extent(topology_, level);
        if (several == apart) return;
        const auto around = [&](int slots) { return column + at(group_id() / slots * slots, bytes); };
        peers(level, round).all_gather(exec, apart == 1 ? own : around(apart), around(several), at(apart, bytes));
    }

    /// Exchanges along `level` the messages that this rank has for the slots `range`, from `sent`: each peer gets the
    /// ones for its coordinate. Then calls summed(slots, ranks): `received` has a message for these slots from each of
    /// `ranks` ranks. Level 0 takes all slots, and calls it for each column that this rank serves, its own last; later
    /// levels only for its own.
    template <execution E, class Summed>
    void exchange(int level, const E& exec, const slot_range& range, const std::byte* sent, std::byte* received,
                  std::size_t bytes, Summed summed) {
        const int apart = slots_beyond(topology_, level);
        if (level != 0) {
            peers(level, range.round).all_to_all(exec, sent, received, at(apart, bytes));
            const slot_range kept{range.first + group_id() % range.count / apart * apart, apart};
            if (range.round == 0) summed(kept, extent(topology_, level));
            return;
        }
        // From the last round to the first, so that the messages of this rank's own column stay in `received`. All
        // ranks take columns in one order, so that none waits for another in a circle.
        const column_rounds all = rounds();
        for (int j = all.count() - 1; j >= 0; --j) {
            peers(0).all_to_all(exec, sent + at(all.first(j) * apart, bytes), received, at(apart, bytes));
            if (all.serves(j, index())) summed(slot_range{all.column(j, index()) * apart, apart, j}, all.ranks);
        }
    }

private:
    std::vector<Transport>& of_level(int level) { return peers_[static_cast<std::size_t>(level)]; }
    static std::size_t at(int messages, std::size_t bytes) { return static_cast<std::size_t>(messages) * bytes; }

    /// Splits `world` into columns: all at once if groups are of equal size, otherwise as many at a time as have no
    /// rank in common. Ranks of none stay alone meanwhile.
    void split_columns() {
        const int columns = largest_group_size(topology_);
        std::vector<char> listed(static_cast<std::size_t>(size()));
        std::vector<int> own(1, rank());
        for (int c = 0; c <= columns; ++c) {
            std::vector<int> members;
            if (c != columns) members = column_ranks(topology_, c);
            bool complete = c == columns;
            for (const int r : members) complete = complete || listed[static_cast<std::size_t>(r)] != 0;
            if (complete) {
                Transport column = world_.split(own);
                if (own.size() != 1) of_level(1).push_back(std::move(column));
                listed = std::vector<char>(listed.size());
                own = std::vector<int>(1, rank());
            }
            for (const int r : members) {
                listed[static_cast<std::size_t>(r)] = 1;
                if (r == rank()) own = members;
            }
        }
    }

    Topology topology_;
    Transport world_;
    detail::by_level<std::vector<Transport>, levels> peers_;  // by round; empty where the world serves
};

}  // namespace zeropp
