#pragma once
/// \file
/// Laws of a transport's splits, and of communicators made of them. Each law is collective over `world`.

#include "conformance/broadcast_laws.hpp"
#include "conformance/delivery_laws.hpp"
#include "support/expectations.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace zeropp_test {

/// World ranks that `part` connects, in order, from its own all_gather.
template <class Transport>
std::vector<int> members_of(Transport& part, int world_rank) {
    std::vector<int> members(static_cast<std::size_t>(part.size()), -1);
    part.all_gather(zeropp::host{}, reinterpret_cast<const std::byte*>(&world_rank),
                    reinterpret_cast<std::byte*>(members.data()), sizeof(int));
    return members;
}

inline std::string text_of(const std::vector<int>& ranks) {
    std::string text;
    for (const int r : ranks) text += (text.empty() ? "" : " ") + std::to_string(r);
    return text;
}

/// Expects `part` to connect the world ranks `members`, in that order, and to carry their bytes.
template <class Transport>
void connects(Transport& part, int world_rank, const std::vector<int>& members, expectations& expect) {
    const auto self = std::find(members.begin(), members.end(), world_rank);
    expect.equal(part.size(), members.size());
    expect.equal(part.rank(), self - members.begin());
    expect.equal(text_of(members_of(part, world_rank)), text_of(members));
    exchanges<zeropp::host>(part, expect, 100);
    if constexpr (must_broadcast<zeropp::host, Transport>()) {
        broadcasts<zeropp::host>(part, expect, 100, (part.size() + 1) / 2, true);
    }
}

/// The ranks in the most nearly square grid: rank = row * columns + column.
struct grid {
    int rows;
    int columns;

    explicit grid(int size) : rows(1), columns(size) {
        for (int r = 1; r * r <= size; ++r) {
            if (size % r == 0) rows = r;
        }
        columns = size / rows;
    }

    std::vector<int> row_of(int rank) const {
        std::vector<int> row;
        for (int c = 0; c != columns; ++c) row.push_back(rank / columns * columns + c);
        return row;
    }
    std::vector<int> column_of(int rank) const {
        std::vector<int> column;
        for (int r = 0; r != rows; ++r) column.push_back(r * columns + rank % columns);
        return column;
    }
};

/// split connects exactly the ranks of the list, in its order. Splits can be split again.
template <class Transport>
void splits(Transport& world, expectations& expect) {
    const int rank = world.rank();
    const grid ranks(world.size());
    Transport row = world.split(ranks.row_of(rank));
    Transport column = world.split(ranks.column_of(rank));
    connects(row, rank, ranks.row_of(rank), expect);
    connects(column, rank, ranks.column_of(rank), expect);

    std::vector<int> reversed(static_cast<std::size_t>(world.size()));
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    Transport backwards = world.split(reversed);
    connects(backwards, rank, reversed, expect);

    Transport alone = world.split(std::vector<int>{rank});
    connects(alone, rank, {rank}, expect);

    // A nested split's list has ranks of its parent.
    const grid of_backwards(backwards.size());
    std::vector<int> expected;
    for (const int b : of_backwards.row_of(backwards.rank())) expected.push_back(world.size() - 1 - b);
    {
        Transport nested = backwards.split(of_backwards.row_of(backwards.rank()));
        connects(nested, rank, expected, expect);
        Transport moved = std::move(nested);
        connects(moved, rank, expected, expect);
    }

    // Destroying one split does not affect the others.
    connects(row, rank, ranks.row_of(rank), expect);
    connects(backwards, rank, reversed, expect);
    std::vector<int> everyone(static_cast<std::size_t>(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    connects(world, rank, everyone, expect);
}

/// A list without the calling rank is an error, after which the transport works.
template <class Transport>
void refuses_splits_without_self(Transport& world, expectations& expect) {
    std::vector<int> others;
    for (int r = 0; r != world.size(); ++r) {
        if (r != world.rank()) others.push_back(r);
    }
    const std::string error = thrown<zeropp::precondition_error>([&] { world.split(others); });
    expect(error.find("expected") != std::string::npos, "a precondition_error, given " + error);
    gathers<zeropp::host>(world, expect, 5);
}

/// Two splits carry bytes at the same time, each on its own queue, in any order.
template <class Transport>
void carries_two_splits_at_once(Transport& world, expectations& expect) {
    const grid ranks(world.size());
    Transport row = world.split(ranks.row_of(world.rank()));
    Transport column = world.split(ranks.column_of(world.rank()));
    constexpr std::size_t bytes = 1000;
    constexpr std::size_t rounds = 20;
    const auto run = [&](Transport& part, const zeropp::host_queue& queue, std::vector<std::byte>& send,
                         std::vector<std::byte>& received) {
        const std::size_t all = place(part.size(), bytes);
        send.resize(all);
        received.resize(rounds * all);
        for (int r = 0; r != part.size(); ++r) message(part.rank(), r).write(send.data() + place(r, bytes), bytes);
        for (std::size_t i = 0; i != rounds; ++i) part.all_to_all(queue, send.data(), received.data() + i * all, bytes);
    };
    const auto check = [&](const Transport& part, const std::vector<std::byte>& received) {
        for (std::size_t i = 0; i != rounds * static_cast<std::size_t>(part.size()); ++i) {
            const int from = static_cast<int>(i) % part.size();
            expect(message(from, part.rank()).is_at(received.data() + i * bytes, bytes), "every round's bytes");
        }
    };
    std::vector<std::byte> row_send, row_received, column_send, column_received;
    {
        const zeropp::host_queue first;
        const zeropp::host_queue second;
        // Half of the ranks begin with the other split, so that neither is first everywhere.
        if (world.rank() % 2 == 0) {
            run(row, first, row_send, row_received);
            run(column, second, column_send, column_received);
        } else {
            run(column, second, column_send, column_received);
            run(row, first, row_send, row_received);
        }
        first.wait();
        second.wait();
    }
    check(row, row_received);
    check(column, column_received);
}

/// `peers` connect the ranks that the topology gives, in its order.
template <class Topology, class Transport>
void joins(const Topology& topology, Transport world, expectations& expect) {
    zeropp::communicator comm(topology, std::move(world));
    const int rank = comm.rank();
    expect.equal(comm.size(), topology.size());
    expect(comm.topology() == topology, "the topology");
    expect.equal(comm.group_id(), topology.group_of(rank));
    expect.equal(comm.index(), topology.index_of(rank));
    std::vector<int> everyone(static_cast<std::size_t>(topology.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    connects(comm.world(), rank, everyone, expect);
    if (Topology::levels != 2 && zeropp::has_equal_groups(topology)) {
        for (int level = 0; level != Topology::levels; ++level) {
            if (!zeropp::has_hop(topology, level)) continue;
            connects(comm.peers(level), rank, zeropp::peer_ranks(topology, level, rank), expect);
        }
        return;
    }
    const int largest = zeropp::largest_group_size(topology);
    if (largest > 1 || topology.groups() == 1) {
        std::vector<int> members;
        for (int i = 0; i != comm.group_size(); ++i) members.push_back(topology.rank_of(comm.group_id(), i));
        connects(comm.peers(0), rank, members, expect);
    }
    if (topology.groups() == 1 && largest > 1) return;
    // A group of k ranks serves columns in turn, and the last ones by its last ranks.
    zeropp::slot_range served{0, topology.groups(), 0};
    for (int column = 0; column != largest; ++column) {
        std::vector<int> members;
        for (int g = 0; g != topology.groups(); ++g) {
            const int k = topology.group_size(g);
            members.push_back(topology.rank_of(g, column < largest / k * k ? column % k : column - (largest - k)));
        }
        if (members[static_cast<std::size_t>(comm.group_id())] != rank) continue;
        connects(comm.peers(1, served), rank, members, expect);
        served.place += topology.groups();
    }
}

}  // namespace zeropp_test
