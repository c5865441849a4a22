#pragma once
/// \file
/// A topology joined to a transport.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// Two buffers of messages of `bytes` bytes each: `sent` has the messages to send, `received` has room for the messages
/// to receive.
struct message_buffers {
    const std::byte* sent;
    std::byte* received;
    std::size_t bytes;
};

/// A topology with its transports: one of all ranks, and for each level one of this rank and its peers. Peers along a
/// level differ in that level's coordinate only. Moves messages along one level at a time. Messages lie in the order of
/// slots: slot = index in group * number of groups + group. So the messages that one peer sends or gets in an operation
/// are contiguous.
///
/// A column is the slots of one index in all groups. If groups differ in size, ranks of smaller groups also move the
/// messages of columns that only larger groups have, in further rounds (column_rounds).
///
/// Runs one collective at a time, in the same order on every rank. Collectives that run side by side (a prefetch of
/// weights while gradients are reduced) need one communicator each, from separate splits of the transport.
template <topology Topology, class Transport>
class communicator {
public:
    /// Number of levels of the topology.
    static constexpr int levels = Topology::levels;

    /// Takes the transport `world`, and splits it for each level. All ranks must call this. Throws precondition_error
    /// unless the topology has as many ranks as the transport; also if the program was compiled with flags of
    /// -ffast-math.
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
                if (l == 1 && slots_beyond(topology_, l) == 1) {
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

    /// Splits a copy of the transport `world` for each level. All ranks must call this.
    communicator(Topology topology, const Transport& world)
        requires std::copy_constructible<Transport>
        : communicator(std::move(topology), Transport(world)) {}

    /// Communicator of the survivors of a failure, each on its node, and their ranks on this communicator. `excluded`
    /// is as in shrinkable_transport. If another rank dies while the survivors connect, they shrink again. But NCCL
    /// does not find that rank: there, `shrink` throws timeout_error, and can be called again with all dead ranks. If
    /// the topology refuses the survivors, throws precondition_error on all ranks, and the transport is of no more use.
    /// So if a topology may refuse ranks, as three_level does, shrink `world()` instead, and then choose a topology.
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

    /// Number of this rank's group.
    int group_id() const { return topology_.group_of(rank()); }
    /// Index of this rank in its group.
    int index() const { return topology_.index_of(rank()); }
    /// Number of ranks in this rank's group.
    int group_size() const { return topology_.group_size(group_id()); }

    /// Transport of all ranks.
    Transport& world() { return world_; }
    /// Transport of this rank and its peers along `level`, in the order of coordinates. Requires a hop along `level`
    /// (`has_hop`). `served` is a range of slots that this rank serves: one column. If that is not the rank's own
    /// column, the transport has the ranks that serve the column in all groups.
    Transport& peers(int level, const slot_range& served = {}) {
        auto& by_round = of_level(level);
        return by_round.empty() ? world_ : by_round[static_cast<std::size_t>(served.place / served.count)];
    }

    /// Address of this rank's message in `messages`, which has a message of `bytes` bytes for each slot.
    std::byte* own(std::byte* messages, std::size_t bytes) const {
        return messages + at(slot_of(topology_, rank()), bytes);
    }

    /// Gathers messages of `bytes` bytes along `level`. `messages` has room for one message of each slot. Before the
    /// call, `messages` has this rank's message and the messages that gathers along all later levels have brought.
    /// Afterwards, `messages` has the peers' messages too. Gathers from the last level to level 0 bring all messages to
    /// all ranks.
    template <execution E>
    void gather(int level, const E& exec, std::byte* messages, std::size_t bytes) {
        if (level == 0) {
            gather_served(exec, messages, at(topology_.groups(), bytes), [](int, std::byte* place) { return place; });
            return;
        }
        const served_slots served = served_by(topology_, rank());
        for (int i = 0; i != served.size(); ++i) {
            gather(level, exec, served[i], {own(messages, bytes), messages + at(served[i].first, bytes), bytes});
        }
    }

    /// Gathers along level 0 the messages of each range of slots that a rank serves, `bytes` bytes for each range.
    /// `stored(i, place)` returns the address of the messages of this rank's i-th range. It may return `place`, the
    /// range's address in `messages`. Returns the address of all messages by slot: `messages`, or, if a rank is alone
    /// in its group, the address of its first range.
    template <execution E, class Stored>
    const std::byte* gather_served(const E& exec, std::byte* messages, std::size_t bytes, Stored stored) {
        const column_rounds all = rounds_of(topology_, group_id());
        const std::byte* first = messages;
        for (int j = 0; j != all.count(); ++j) {
            std::byte* const place = messages + at(all.column(j, index()), bytes);
            const std::byte* const sent = all.serves(j, index()) ? stored(j, place) : place;
            if (all.ranks != 1) {
                peers(0).all_gather(exec, sent, messages + at(all.first(j), bytes), bytes);
            } else if (j == 0) {
                first = sent;
            }
        }
        return first;
    }

    /// Gathers along a `level` after 0, for the slots `range` that this rank serves. `of.received` has room for a
    /// message of each slot of `range`. The last level sends `of.sent`, this rank's message, which may lie in
    /// `of.received`. Other levels send messages that lie in `of.received`.
    template <execution E>
    void gather(int level, const E& exec, const slot_range& range, const message_buffers& of) {
        const int apart = slots_beyond(topology_, level), several = apart * extent(topology_, level);
        if (several == apart) return;
        const auto around = [&](int slots) { return of.received + at(group_id() / slots * slots, of.bytes); };
        peers(level, range)
            .all_gather(exec, apart == 1 ? of.sent : around(apart), around(several), at(apart, of.bytes));
    }

    /// All-to-all along `level` of this rank's messages for the slots `range`: each peer gets the messages for the
    /// slots of its coordinate. Then calls `summed(slots, ranks)`, to sum the messages in `of.received`: one for each
    /// of `slots` from each of `ranks` ranks. Level 0 takes all slots, and calls `summed` for each range that this rank
    /// serves, the rank's own column last. Later levels call `summed` only for the rank's own slots.
    template <execution E, class Summed>
    void exchange(int level, const E& exec, const slot_range& range, const message_buffers& of, Summed summed) {
        const int apart = slots_beyond(topology_, level);
        if (level != 0) {
            peers(level, range).all_to_all(exec, of.sent, of.received, at(apart, of.bytes));
            const slot_range kept{slot_of(topology_, rank()) / apart * apart, apart};
            if (range.place == 0) summed(kept, extent(topology_, level));
            return;
        }
        // From the last round to the first, so that the messages of this rank's own column stay in `received`. All
        // ranks take columns in descending order, so that no ranks wait for one another in a circle.
        const column_rounds all = rounds_of(topology_, group_id());
        for (int j = all.count() - 1; j >= 0; --j) {
            peers(0).all_to_all(exec, of.sent + at(all.first(j) * apart, of.bytes), of.received, at(apart, of.bytes));
            if (all.serves(j, index())) summed(slot_range{all.column(j, index()) * apart, apart, j * apart}, all.ranks);
        }
    }

private:
    std::vector<Transport>& of_level(int level) { return peers_[static_cast<std::size_t>(level)]; }
    static std::size_t at(int messages, std::size_t bytes) { return static_cast<std::size_t>(messages) * bytes; }

    /// Splits the transport of all ranks into one transport for each column: all at once if groups are of equal size.
    /// Otherwise each split makes successive columns without a common rank; every other rank gets a transport of itself
    /// alone.
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
    detail::by_level<std::vector<Transport>, levels> peers_;  // [level][served range]: of the peers; none: `world_`
};

}  // namespace zeropp
