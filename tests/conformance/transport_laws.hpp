#pragma once
/// \file
/// What every transport between ranks of host memory must do. Each law is collective over `world` and notes what a rank
/// found in `expect`, so that the same law serves ranks on threads and ranks that are processes.

#include "support/expectations.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/counting.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeropp_test {

// The decorators, as ways to wrap a transport. All ranks on one node, where it matters.

struct plain {
    template <class T>
    static T wrap(T inner) {
        return inner;
    }
};

struct counted {
    template <class T>
    static auto wrap(T inner) {
        const zeropp::flat nodes(inner.size());
        return zeropp::counting<T, zeropp::flat>(std::move(inner), nodes);
    }
};

struct checking {
    template <class T>
    static auto wrap(T inner) {
        return zeropp::checked<T>(std::move(inner));
    }
};

template <class Outer, class Inner>
struct both {
    template <class T>
    static auto wrap(T inner) {
        return Outer::wrap(Inner::wrap(std::move(inner)));
    }
};

// What ranks send each other.

/// Bytes that name their sender, receiver and place; their period divides no power of two, so that a piece out of place
/// shows.
class message {
public:
    message(int from, int to) {
        for (std::size_t i = 0; i != period; ++i) {
            bytes_[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(from * 31 + to * 101 + 1));
        }
    }

    void write(std::byte* at, std::size_t bytes) const {
        for (std::size_t done = 0; done < bytes; done += period) {
            std::memcpy(at + done, bytes_.data(), std::min(period, bytes - done));
        }
    }

    bool is_at(const std::byte* at, std::size_t bytes) const {
        for (std::size_t done = 0; done < bytes; done += period) {
            if (std::memcmp(at + done, bytes_.data(), std::min(period, bytes - done)) != 0) return false;
        }
        return true;
    }

private:
    static constexpr std::size_t period = 251;
    std::array<std::byte, period> bytes_;
};

/// Memory between two strips that nobody may touch.
class guarded_bytes {
public:
    explicit guarded_bytes(std::size_t bytes) : memory_(bytes + 2 * strip, fill) {}

    std::byte* data() { return memory_.data() + strip; }

    bool intact() const {
        const auto untouched = [](std::byte b) { return b == fill; };
        return std::all_of(memory_.begin(), memory_.begin() + strip, untouched) &&
               std::all_of(memory_.end() - strip, memory_.end(), untouched);
    }

private:
    static constexpr int strip = 64;
    static constexpr std::byte fill{0xa5};
    std::vector<std::byte> memory_;
};

inline std::size_t place(int rank, std::size_t bytes) { return static_cast<std::size_t>(rank) * bytes; }

constexpr int to_all = -1;

/// all_gather delivers every rank's bytes to every rank.
template <class Execution, class Transport>
void gathers(Transport& world, expectations& expect, std::size_t bytes) {
    const Execution exec;
    std::vector<std::byte> send(bytes);
    guarded_bytes received(place(world.size(), bytes));
    message(world.rank(), to_all).write(send.data(), bytes);
    world.all_gather(exec, send.data(), received.data(), bytes);
    exec.wait();
    for (int r = 0; r != world.size(); ++r) {
        expect(message(r, to_all).is_at(received.data() + place(r, bytes), bytes),
               "rank " + std::to_string(r) + "'s bytes");
    }
    expect(received.intact(), "no byte beside the buffer");
    expect(message(world.rank(), to_all).is_at(send.data(), bytes), "what is sent to stay as it is");
}

/// all_gather works where send is this rank's own place in recv.
template <class Execution, class Transport>
void gathers_in_place(Transport& world, expectations& expect, std::size_t bytes) {
    const Execution exec;
    guarded_bytes all(place(world.size(), bytes));
    std::byte* const own = all.data() + place(world.rank(), bytes);
    message(world.rank(), to_all).write(own, bytes);
    world.all_gather(exec, own, all.data(), bytes);
    exec.wait();
    for (int r = 0; r != world.size(); ++r) {
        expect(message(r, to_all).is_at(all.data() + place(r, bytes), bytes), "rank " + std::to_string(r) + "'s bytes");
    }
    expect(all.intact(), "no byte beside the buffer");
}

/// broadcast delivers the bytes of the first `roots` ranks to every rank, `in_place` or not, touches nothing behind
/// them, and reads nothing of other ranks.
template <class Execution, class Transport>
void broadcasts(Transport& world, expectations& expect, std::size_t bytes, int roots, bool in_place) {
    const Execution exec;
    const bool is_root = world.rank() < roots;
    std::vector<std::byte> apart(is_root ? bytes : 0);
    guarded_bytes received(place(roots, bytes));
    std::byte* const own = in_place && is_root ? received.data() + place(world.rank(), bytes) : apart.data();
    if (is_root) message(world.rank(), to_all).write(own, bytes);
    world.broadcast(exec, is_root ? own : nullptr, received.data(), bytes, roots);
    exec.wait();
    for (int r = 0; r != roots; ++r) {
        expect(message(r, to_all).is_at(received.data() + place(r, bytes), bytes),
               "rank " + std::to_string(r) + "'s bytes of " + std::to_string(roots));
    }
    expect(received.intact(), "no byte beside the buffer of " + std::to_string(roots) + " roots");
    expect(!is_root || message(world.rank(), to_all).is_at(own, bytes), "what is sent to stay as it is");
}

/// A root may go on while others have not come: what they do next is not mixed up with it.
template <class Execution, class Transport>
void keeps_the_order_of_broadcasts(Transport& world, expectations& expect) {
    constexpr std::size_t bytes = 40;
    constexpr std::size_t rounds = 20;
    const Execution exec;
    const auto roots_in = [&](std::size_t round) { return 1 + static_cast<int>(round) % world.size(); };
    std::vector<std::byte> sent(rounds * bytes);
    std::vector<std::byte> received(rounds * place(world.size(), bytes));
    for (std::size_t i = 0; i != rounds; ++i) {
        message(world.rank(), static_cast<int>(i)).write(sent.data() + i * bytes, bytes);
        world.broadcast(exec, sent.data() + i * bytes, received.data() + i * place(world.size(), bytes), bytes,
                        roots_in(i));
    }
    exec.wait();
    for (std::size_t i = 0; i != rounds; ++i) {
        for (int r = 0; r != roots_in(i); ++r) {
            expect(message(r, static_cast<int>(i))
                       .is_at(received.data() + i * place(world.size(), bytes) + place(r, bytes), bytes),
                   "broadcast " + std::to_string(i) + " of rank " + std::to_string(r));
        }
    }
}

/// All laws of broadcasting_transport_on, with every number of roots.
template <class Execution, class Transport>
void broadcast_laws(Transport& world, expectations& expect) {
    expect(zeropp::can_broadcast<Execution>(world), "a transport that can broadcast");
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{4096}, (std::size_t{1} << 20) + 1}) {
        for (int roots = 1; roots <= world.size(); ++roots) {
            broadcasts<Execution>(world, expect, bytes, roots, false);
            broadcasts<Execution>(world, expect, bytes, roots, true);
        }
    }
    keeps_the_order_of_broadcasts<Execution>(world, expect);
    world.broadcast(Execution(), nullptr, nullptr, 0, 1);
    gathers<Execution>(world, expect, 3);
}

/// all_to_all delivers to every rank what each rank has for it.
template <class Execution, class Transport>
void exchanges(Transport& world, expectations& expect, std::size_t bytes) {
    const Execution exec;
    std::vector<std::byte> send(place(world.size(), bytes));
    guarded_bytes received(place(world.size(), bytes));
    for (int r = 0; r != world.size(); ++r) message(world.rank(), r).write(send.data() + place(r, bytes), bytes);
    world.all_to_all(exec, send.data(), received.data(), bytes);
    exec.wait();
    for (int r = 0; r != world.size(); ++r) {
        expect(message(r, world.rank()).is_at(received.data() + place(r, bytes), bytes),
               "what rank " + std::to_string(r) + " has for rank " + std::to_string(world.rank()));
    }
    expect(received.intact(), "no byte beside the buffer");
}

/// Operations in flight at once complete in order: what one receives, the next may send.
template <class Execution, class Transport>
void keeps_the_order_of_operations(Transport& world, expectations& expect) {
    constexpr std::size_t bytes = 24;
    const Execution exec;
    const std::size_t all = place(world.size(), bytes);
    std::vector<std::byte> start(all);
    std::vector<std::byte> there(all);
    std::vector<std::byte> back(all);
    for (int r = 0; r != world.size(); ++r) message(world.rank(), r).write(start.data() + place(r, bytes), bytes);
    for (int round = 0; round != 25; ++round) {
        world.all_to_all(exec, round == 0 ? start.data() : back.data(), there.data(), bytes);
        world.all_to_all(exec, there.data(), back.data(), bytes);
    }
    std::vector<std::byte> gathered(place(world.size(), all));
    world.all_gather(exec, back.data(), gathered.data(), all);
    exec.wait();
    expect(back == start, "fifty exchanges there and back to change nothing");
    for (int from = 0; from != world.size(); ++from) {
        for (int to = 0; to != world.size(); ++to) {
            expect(message(from, to).is_at(gathered.data() + place(from, all) + place(to, bytes), bytes),
                   "a gather behind them");
        }
    }
}

/// Nothing at all may be sent, from nowhere.
template <class Execution, class Transport>
void carries_nothing(Transport& world, expectations& expect) {
    const Execution exec;
    world.all_gather(exec, nullptr, nullptr, 0);
    world.all_to_all(exec, nullptr, nullptr, 0);
    exec.wait();
    gathers<Execution>(world, expect, 3);
}

template <class Execution, class Transport>
void moves_bytes(Transport& world, expectations& expect) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{17},
                                    std::size_t{4096}, (std::size_t{1} << 20) + 1}) {
        gathers<Execution>(world, expect, bytes);
        gathers_in_place<Execution>(world, expect, bytes);
        exchanges<Execution>(world, expect, bytes);
    }
    keeps_the_order_of_operations<Execution>(world, expect);
    carries_nothing<Execution>(world, expect);
    if constexpr (zeropp::broadcasting_transport_on<Transport, Execution>) broadcast_laws<Execution>(world, expect);
}

// Splits.

/// The world's ranks that `part` connects, in order, as `part` itself tells.
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

/// Expects that `part` connects `members` of the world, in that order, and carries their bytes.
template <class Transport>
void connects(Transport& part, int world_rank, const std::vector<int>& members, expectations& expect) {
    const auto self = std::find(members.begin(), members.end(), world_rank);
    expect.equal(part.size(), members.size());
    expect.equal(part.rank(), self - members.begin());
    expect.equal(text_of(members_of(part, world_rank)), text_of(members));
    exchanges<zeropp::host>(part, expect, 100);
    if constexpr (zeropp::broadcasting_transport_on<Transport, zeropp::host>) {
        broadcasts<zeropp::host>(part, expect, 100, (part.size() + 1) / 2, true);
    }
}

/// The ranks in a grid that is as square as it can be: rank = row * columns + column.
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

/// split connects exactly the ranks of the list, in its order; and splits can be split again.
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

    // The list of a nested split is of ranks of its parent.
    const grid of_backwards(backwards.size());
    std::vector<int> expected;
    for (const int b : of_backwards.row_of(backwards.rank())) expected.push_back(world.size() - 1 - b);
    {
        Transport nested = backwards.split(of_backwards.row_of(backwards.rank()));
        connects(nested, rank, expected, expect);
        Transport moved = std::move(nested);
        connects(moved, rank, expected, expect);
    }

    // The rest works as before, now that one is gone.
    connects(row, rank, ranks.row_of(rank), expect);
    connects(backwards, rank, reversed, expect);
    std::vector<int> everyone(static_cast<std::size_t>(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    connects(world, rank, everyone, expect);
}

/// A list without the rank that gives it is an error, after which the transport works.
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

/// Two splits carry bytes at the same time, each on its own queue, in whatever order they come.
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
        // Half of the ranks begin with the other split, so that neither can count on being first everywhere.
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

/// All of the above.
template <class Transport>
void transport_laws(Transport& world, expectations& expect) {
    static_assert(zeropp::transport_on<Transport, zeropp::host> && zeropp::transport_on<Transport, zeropp::host_queue>);
    moves_bytes<zeropp::host>(world, expect);
    moves_bytes<zeropp::host_queue>(world, expect);
    splits(world, expect);
    refuses_splits_without_self(world, expect);
    carries_two_splits_at_once(world, expect);
}

// Errors that ranks share.

/// Expects `text` to be the same on every rank.
template <class Transport>
void same_on_every_rank(Transport& world, const std::string& text, expectations& expect) {
    constexpr std::size_t capacity = 4096;
    std::array<char, capacity> mine{};
    std::copy_n(text.begin(), std::min(text.size(), capacity - 1), mine.begin());
    std::vector<char> all(place(world.size(), capacity));
    world.all_gather(zeropp::host{}, reinterpret_cast<const std::byte*>(mine.data()),
                     reinterpret_cast<std::byte*>(all.data()), capacity);
    for (int r = 0; r != world.size(); ++r)
        expect.equal(std::string(all.data() + place(r, capacity)), std::string(mine.data()));
}

inline zeropp::collective_call a_call() { return {"gather", 10, "fp32", "int8", "in 2 chunks"}; }

inline std::string text_of(const zeropp::collective_call& call) {
    return call.primitive.str() + " of " + std::to_string(call.elements) + " elements of " + call.element.str() +
           " with " + call.quantizer.str() + ", " + call.options.str();
}

/// For `checked` transports. Calls that agree go on; where one rank's differs in anything, or one rank has a problem,
/// every rank throws the same text, and the transport works afterwards.
template <class Transport>
void compares_calls(Transport& world, expectations& expect) {
    using zeropp::collective_call;
    using zeropp::precondition_error;
    const auto begin = [&](const collective_call& call, const std::string& problem) {
        return thrown<precondition_error>([&] { zeropp::begin_collective(world, call, problem); });
    };
    expect.equal(begin(a_call(), ""), "<nothing thrown>");

    std::vector<collective_call> others(5, a_call());
    others[0].primitive = "scatter";
    others[1].elements = (std::uint64_t{1} << 40) + 10;
    others[2].element = "bf16";
    others[3].quantizer = "int4";
    others[4].options = "in 3 chunks";
    for (const collective_call& other : others) {
        for (int odd = 0; odd != world.size(); ++odd) {
            const std::string error = begin(world.rank() == odd ? other : a_call(), "");
            std::string expected = "checked: expected the same call on every rank, given ";
            for (int r = 0; r != world.size(); ++r) {
                expected +=
                    (r == 0 ? "" : "; ") + text_of(r == odd ? other : a_call()) + " on rank " + std::to_string(r);
            }
            expect.equal(error, world.size() == 1 ? "<nothing thrown>" : expected);
            same_on_every_rank(world, error, expect);
        }
    }
    for (int odd = 0; odd != world.size(); ++odd) {
        const std::string error = begin(a_call(), world.rank() == odd ? "expected a shard of 5, given 4" : "");
        expect.equal(error, "gather: on rank " + std::to_string(odd) + ", expected a shard of 5, given 4");
        same_on_every_rank(world, error, expect);
    }
    // A problem comes before a difference, the lowest rank's first, and a long one is cut and not lost.
    collective_call mine = a_call();
    mine.elements = static_cast<std::uint64_t>(world.rank());
    expect.equal(begin(mine, "every rank has one"), "gather: on rank 0, every rank has one");
    expect.equal(begin(a_call(), std::string(1000, 'x')), "gather: on rank 0, " + std::string(255, 'x'));

    expect.equal(begin(a_call(), ""), "<nothing thrown>");
    exchanges<zeropp::host>(world, expect, 77);
}

/// The same in a split: its ranks alone compare.
template <class Transport>
void compares_calls_in_splits(Transport& world, expectations& expect) {
    const grid ranks(world.size());
    Transport row = world.split(ranks.row_of(world.rank()));
    compares_calls(row, expect);
    // Rows may differ from one another.
    zeropp::collective_call call = a_call();
    call.elements = static_cast<std::uint64_t>(world.rank() / ranks.columns);
    zeropp::begin_collective(row, call, "");
    exchanges<zeropp::host>(row, expect, 8);
}

// Counting.

/// The entry of `primitive`, or one of nothing.
template <class Counting>
zeropp::traffic traffic_of(const Counting& transport, std::string_view primitive) {
    for (const zeropp::traffic& t : transport.by_primitive()) {
        if (t.primitive == zeropp::short_text(primitive)) return t;
    }
    return {.primitive = primitive};
}

inline void equals(const zeropp::traffic& t, std::uint64_t calls, std::uint64_t inside, std::uint64_t across,
                   expectations& expect, std::source_location at = std::source_location::current()) {
    expect.equal(t.calls, calls, at);
    expect.equal(t.bytes_inside, inside, at);
    expect.equal(t.bytes_across, across, at);
}

/// For `counting` transports on which nothing has been counted yet; `node_of_rank` is their topology.
template <class Counting>
void counts_exactly(Counting& world, const std::vector<int>& node_of_rank, expectations& expect) {
    const zeropp::host exec;
    const int rank = world.rank();
    const auto node = [&](int r) { return node_of_rank.at(static_cast<std::size_t>(r)); };
    // How many of these ranks are others on this rank's node, and how many on other nodes.
    const auto peers = [&](const std::vector<int>& ranks) {
        std::pair<std::uint64_t, std::uint64_t> inside_and_across;
        for (const int r : ranks) {
            if (r != rank) ++(node(r) == node(rank) ? inside_and_across.first : inside_and_across.second);
        }
        return inside_and_across;
    };
    std::vector<int> everyone(static_cast<std::size_t>(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto [inside, across] = peers(everyone);
    std::vector<std::byte> send(place(world.size(), 100));
    std::vector<std::byte> received(place(world.size(), 100));

    equals(world.total(), 0, 0, 0, expect);
    expect(world.by_primitive().empty(), "no entries at first");
    world.all_gather(exec, send.data(), received.data(), 100);
    equals(traffic_of(world, ""), 0, 100 * inside, 100 * across, expect);
    world.all_to_all(exec, send.data(), received.data(), 7);
    equals(traffic_of(world, ""), 0, 107 * inside, 107 * across, expect);
    world.all_to_all(exec, send.data(), received.data(), 0);
    equals(world.total(), 0, 107 * inside, 107 * across, expect);

    if constexpr (zeropp::broadcasting_transport_on<Counting, zeropp::host>) {
        // Roots send to everybody, others to nobody. What comes after it is counted as without it.
        const std::uint64_t sent = rank == 0 ? 9 : 0;
        world.broadcast(exec, send.data(), received.data(), 9, 1);
        equals(world.total(), 0, (107 + sent) * inside, (107 + sent) * across, expect);
        world.broadcast(exec, send.data(), received.data(), 1, world.size());
        equals(world.total(), 0, (108 + sent) * inside, (108 + sent) * across, expect);
        world.reset();
        world.all_gather(exec, send.data(), received.data(), 100);
        world.all_to_all(exec, send.data(), received.data(), 7);
    }

    // Three collectives in turn, two of them twice: operations count for the one that began last.
    const auto begin = [&](std::string_view name) {
        zeropp::begin_collective(world, {name, 1, "fp32", "int8", {}}, "");
    };
    for (const std::string_view name : {"a", "b", "a", "c", "b"}) {
        begin(name);
        world.all_gather(exec, send.data(), received.data(), name == "a" ? 10 : name == "b" ? 20 : 30);
    }
    equals(traffic_of(world, "a"), 2, 20 * inside, 20 * across, expect);
    equals(traffic_of(world, "b"), 2, 40 * inside, 40 * across, expect);
    equals(traffic_of(world, "c"), 1, 30 * inside, 30 * across, expect);
    equals(traffic_of(world, ""), 0, 107 * inside, 107 * across, expect);
    equals(world.total(), 5, 197 * inside, 197 * across, expect);
    std::string names;
    for (const zeropp::traffic& t : world.by_primitive()) names += "[" + t.primitive.str() + "]";
    expect.equal(names, "[][a][b][c]");

    // Splits, and splits of splits, count in the same totals, by where their ranks are in the world.
    const grid ranks(world.size());
    Counting column = world.split(ranks.column_of(rank));
    Counting row = world.split(ranks.row_of(rank));
    Counting alone = row.split(std::vector<int>{row.rank()});
    std::vector<int> reversed(everyone.rbegin(), everyone.rend());
    Counting backwards = world.split(reversed);
    Counting nested = backwards.split(ranks.row_of(backwards.rank()));
    std::vector<int> nested_ranks;
    for (const int b : ranks.row_of(backwards.rank())) nested_ranks.push_back(world.size() - 1 - b);
    world.reset();
    equals(world.total(), 0, 0, 0, expect);
    equals(column.total(), 0, 0, 0, expect);
    begin("d");
    column.all_gather(exec, send.data(), received.data(), 3);
    row.all_to_all(exec, send.data(), received.data(), 5);
    alone.all_gather(exec, send.data(), received.data(), 100);
    const auto [column_inside, column_across] = peers(ranks.column_of(rank));
    const auto [row_inside, row_across] = peers(ranks.row_of(rank));
    for (const Counting* any : {&world, &column, &row, &alone}) {
        equals(any->total(), 1, 3 * column_inside + 5 * row_inside, 3 * column_across + 5 * row_across, expect);
    }
    alone.reset();
    equals(world.total(), 0, 0, 0, expect);
    nested.all_gather(exec, send.data(), received.data(), 11);
    const auto [nested_inside, nested_across] = peers(nested_ranks);
    equals(world.total(), 0, 11 * nested_inside, 11 * nested_across, expect);
}

// Communicators.

/// group and across connect the ranks that the topology says, in its order.
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
    if (topology.group_size() > 1 || topology.groups() == 1) {
        std::vector<int> members;
        for (int i = 0; i != topology.group_size(); ++i) members.push_back(topology.rank_of(comm.group_id(), i));
        connects(comm.group(), rank, members, expect);
    }
    if (topology.groups() > 1 || topology.group_size() == 1) {
        std::vector<int> members;
        for (int g = 0; g != topology.groups(); ++g) members.push_back(topology.rank_of(g, comm.index()));
        connects(comm.across(), rank, members, expect);
    }
}

}  // namespace zeropp_test
