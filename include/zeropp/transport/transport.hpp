#pragma once
/// \file
/// The transport concept: how bytes move between ranks.

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/execution/execution.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeropp {

/// Connects ranks and moves bytes between them on executions of type E. Every operation is collective: all ranks of the
/// transport call it, in the same order, with the same sizes. Operations are enqueued on `exec`; buffers and the
/// transport must stay valid until `exec` has completed them.
///   `rank()`, `size()` number of this rank, from 0, and number of ranks
///   `all_gather(exec, send, recv, bytes)` fills recv[r * bytes ...] with the bytes that rank r sent. `send` may be
///                                         recv + rank() * bytes
///   `all_to_all(exec, send, recv, bytes)` fills recv[r * bytes ...] with rank r's send[rank() * bytes ...]. `send` and
///                                         `recv` do not overlap
///   `split(members)` returns a transport of `members`: ranks of this one, in their new order, with this rank among
///                    them. The lists of any two ranks are equal or disjoint. Blocks the caller
/// A transport with a `broadcast` is a broadcasting_transport_on. A transport around another one derives from
/// `adaptor`, which forwards every call. A transport with one function for all operations derives from `operations`.
template <class T, class E>
concept transport_on = execution<E> && std::movable<T> &&
                       requires(T& t, const T& c, const E& exec, const std::byte* send, std::byte* recv,
                                std::size_t bytes, std::span<const int> members) {
                           { c.rank() } -> std::same_as<int>;
                           { c.size() } -> std::same_as<int>;
                           t.all_gather(exec, send, recv, bytes);
                           t.all_to_all(exec, send, recv, bytes);
                           { t.split(members) } -> std::same_as<T>;
                       };

/// A transport with one more operation, in which only some ranks send. If only run time tells whether a transport can
/// broadcast, as with any_transport, its member `broadcasts<E>()` says so, see can_broadcast.
///   `broadcast(exec, send, recv, bytes, roots)` fills recv[r * bytes ...] with the bytes that rank r sent, r < roots.
///                                               A root's `send` may be recv + rank() * bytes. Other ranks'
///                                               `send` is not read. Requires 0 < roots <= size(). With one root
///                                               this is NCCL's and MPI's broadcast from rank 0, with size()
///                                               roots an all_gather
template <class T, class E>
concept broadcasting_transport_on =
    transport_on<T, E> && requires(T& t, const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes,
                                   int roots) { t.broadcast(exec, send, recv, bytes, roots); };

/// Result of `shrink`: a transport or communicator of the survivors.
template <class T>
struct shrunk {
    /// The transport or communicator of the survivors.
    T next;
    /// [r]: rank that rank r of `next` had on the transport or communicator that was shrunk. In increasing order.
    std::vector<int> survivors;
};

/// A transport from which the survivors of a failure make a smaller one, as with MPIX_Comm_shrink and ncclCommShrink.
///   `shrink(excluded)` returns a transport of the survivors, renumbered in the order of their ranks, and their old
///                      ranks, equal on all survivors. Blocks the caller. Collective over the survivors, at most once
///                      on each transport. Fails all transports that were split from one another: on all ranks, their
///                      waiting and later operations throw
/// A rank that calls too late, or is excluded, throws excluded_error. `excluded` are other ranks of this transport,
/// equal on all survivors. Threads and MPI find dead ranks by themselves; there, `excluded` names further ranks. On
/// NCCL and process groups, `excluded` must name all ranks to leave out. No operation may be in flight on an
/// execution: `wait` first, even if it throws. Workspaces, residuals, partitions and replicas depend on the number of
/// ranks: make new ones.
template <class T>
concept shrinkable_transport = requires(T& t, std::span<const int> excluded) {
    { t.shrink(excluded) } -> std::same_as<shrunk<T>>;
};

/// True if `transport` can broadcast on executions of type E.
template <execution E, class T>
bool can_broadcast(const T& transport) {
    if constexpr (!broadcasting_transport_on<T, E>) {
        return false;
    } else if constexpr (requires { transport.template broadcasts<E>(); }) {
        return transport.template broadcasts<E>();
    } else {
        return true;
    }
}

/// Description of the collective that a rank is about to run. Transports count collectives, compare them between ranks,
/// or name them in errors.
struct collective_call {
    /// Name of the collective.
    short_text primitive;
    /// Number of elements of the whole tensor.
    std::uint64_t elements = 0;
    /// Name of the element type.
    short_text element;
    /// Names of the quantizers of all hops.
    agreed_text quantizer;
    /// Other settings that the ranks must agree on, in words.
    agreed_text options;
    /// Hash (`topology_digest`) of the topology that the call is for; 0 for none.
    std::uint64_t topology = 0;

    friend bool operator==(const collective_call&, const collective_call&) = default;
};

namespace detail {
/// World ranks of a transport of all `size` ranks: 0, 1, ..., `size` - 1.
inline std::vector<int> world_ranks(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}
/// World ranks of `members`, which are ranks of a transport. `parent[r]` is the world rank of that transport's rank r.
inline std::vector<int> world_ranks(std::span<const int> parent, std::span<const int> members) {
    std::vector<int> ranks;
    for (const int m : members) ranks.push_back(parent[static_cast<std::size_t>(m)]);
    return ranks;
}

/// The error, in the name of `transport`, of `members`, with which rank `rank` of `size` calls split: if the list lacks
/// this rank, or names ranks that the transport does not have.
inline std::optional<precondition_error> split_error(std::string_view transport, std::span<const int> members, int rank,
                                                     int size) {
    if (std::ranges::find(members, rank) == members.end()) {
        return precondition_error(transport, "a split list with rank " + std::to_string(rank), "one without");
    }
    const auto other = std::ranges::find_if(members, [&](int m) { return m < 0 || m >= size; });
    if (other == members.end()) return std::nullopt;
    return precondition_error(transport, "a split list of ranks below " + std::to_string(size),
                              "one with " + std::to_string(*other));
}

/// The error, in the name of `transport`, of a split with the list `members` that only `joined` ranks have joined.
inline precondition_error joined_error(std::string_view transport, std::span<const int> members, int joined) {
    return precondition_error(transport,
                              "the same split list on each of its " + std::to_string(members.size()) + " ranks",
                              "lists of " + std::to_string(joined) + " ranks that begin alike");
}

/// Throws precondition_error in the name of `transport` unless `excluded` are ranks of a transport of `size` ranks,
/// other than `rank`.
inline void require_excluded(std::string_view transport, std::span<const int> excluded, int rank, int size) {
    for (const int e : excluded) {
        if (e >= 0 && e < size && e != rank) continue;
        throw precondition_error(transport,
                                 "excluded ranks below " + std::to_string(size) + " other than " + std::to_string(rank),
                                 text_of(excluded));
    }
}

/// Ranks of a transport of `size` ranks that are not in `ranks`, in increasing order.
inline std::vector<int> other_ranks(int size, std::span<const int> ranks) {
    std::vector<int> others;
    for (int r = 0; r != size; ++r) {
        if (std::find(ranks.begin(), ranks.end(), r) == ranks.end()) others.push_back(r);
    }
    return others;
}

/// Error for `rank`, which the ranks `survivors` have left out. `transport` is the transport's name.
[[gnu::cold]] inline excluded_error left_out(std::string_view transport, int rank, std::span<const int> survivors) {
    return excluded_error(std::string(transport) + ": rank " + std::to_string(rank) +
                          " is left out; the ranks that go on are " + text_of(survivors));
}

/// Shrinks `from.next` to the ranks `kept` of `from.survivors`, which stay ranks of the transport shrunk first.
template <shrinkable_transport T>
void shrink_to(shrunk<T>& from, std::span<const int> kept) {
    std::vector<int> excluded;
    for (std::size_t r = 0; r != from.survivors.size(); ++r) {
        const bool stays = std::find(kept.begin(), kept.end(), from.survivors[r]) != kept.end();
        if (!stays) excluded.push_back(static_cast<int>(r));
    }
    shrunk<T> again = from.next.shrink(excluded);
    from.next = std::move(again.next);
    from.survivors = world_ranks(from.survivors, again.survivors);
}

/// Returns `make(left)`, a T of the survivors, and the survivors' ranks. If another rank dies meanwhile, `make` must
/// throw lost_rank_error and leave `left.next` in place: the survivors then shrink again.
template <class T, shrinkable_transport Transport, class Make>
shrunk<T> connect(shrunk<Transport> left, Make make) {
    for (;;) {
        try {
            return {make(left), left.survivors};
        } catch (const lost_rank_error&) {
            shrink_to(left, left.survivors);
        }
    }
}

/// Throws precondition_error if `problem` is not empty.
inline void require_no_problem(const collective_call& call, const std::string& problem) {
    if (!problem.empty()) throw precondition_error(call.primitive.str() + ": " + problem);
}
}  // namespace detail

/// Tells `transport` that a collective begins: calls its member `begin` if it has one. `problem` describes an error in
/// this rank's arguments, or is empty. Throws precondition_error if there is a problem, after `begin`.
template <class T>
void begin_collective(T& transport, const collective_call& call, const std::string& problem) {
    if constexpr (requires { transport.begin(call, problem); }) transport.begin(call, problem);
    detail::require_no_problem(call, problem);
}

/// Blocks until `exec` has completed all its work, including operations of `transport`; throws the exception of failed
/// work. Calls the transport's member `wait` if there is one, because operations on a failed network may never end by
/// themselves.
template <class T, execution E>
void wait_for(T& transport, const E& exec) {
    if constexpr (requires { transport.wait(exec); }) {
        transport.wait(exec);
    } else {
        exec.wait();
    }
}

}  // namespace zeropp
