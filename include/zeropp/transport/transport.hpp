#pragma once
/// \file
/// The transport concept: how bytes move between ranks.

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/execution/execution.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace zeropp {

/// A transport connects a group of ranks and moves bytes between them on executions of type E. Every operation is
/// collective: all ranks of the transport call it, in the same order, with the same sizes. Operations are enqueued on
/// `exec`; buffers must stay valid until it has completed them, and so must the transport.
///   `rank()`, `size()`
///   `all_gather(exec, send, recv, bytes)` recv[r * bytes ...] is what rank r sent; send may be its own place in recv
///   `all_to_all(exec, send, recv, bytes)` recv[r * bytes ...] is what rank r had at send[rank() * bytes ...]; send and
///                                         recv do not overlap
///   `split(members)` a transport of `members` (ranks of this one, in their new order, this rank among them). The lists
///                    of any two ranks are equal or disjoint. Blocks the caller
/// One that can also `broadcast` is a broadcasting_transport_on.
/// A transport around another one derives from `adaptor`, which passes on what those inside have to hear of.
template <class T, class E>
concept transport_on = execution<E> && std::movable<T> &&
    requires(T& t, const T& c, const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes,
             std::span<const int> members) {
    { c.rank() } -> std::same_as<int>;
    { c.size() } -> std::same_as<int>;
    t.all_gather(exec, send, recv, bytes);
    t.all_to_all(exec, send, recv, bytes);
    { t.split(members) } -> std::same_as<T>;
};

/// A transport with one more operation, for what only some ranks have. Where it is known at run time alone whether a
/// transport can, a member `broadcasts<E>()` says so: see can_broadcast.
///   `broadcast(exec, send, recv, bytes, roots)` recv[r * bytes ...] is what rank r sent, of the first `roots` ranks;
///                                               send may be its own place in recv. Other ranks send nothing, and their
///                                               `send` is not read. Requires 0 < roots <= size(). With one root it is
///                                               NCCL's and MPI's broadcast from rank 0, with size() an all_gather
template <class T, class E>
concept broadcasting_transport_on = transport_on<T, E> &&
    requires(T& t, const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes, int roots) {
    t.broadcast(exec, send, recv, bytes, roots);
};

/// Whether `transport` can broadcast on executions of type E.
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

/// What a rank is about to do, for transports that watch (`counting`, `checked`) or name it in errors.
struct collective_call {
    short_text primitive;
    /// The whole tensor, in elements.
    std::uint64_t elements = 0;
    short_text element;
    /// Names of the quantizers of all hops.
    agreed_text quantizer;
    /// What else the ranks must agree on, in words.
    agreed_text options;
};

namespace detail {
/// The world's numbers of the ranks of a transport: of the world itself, and of a split of `members`, by its parent's.
inline std::vector<int> world_ranks(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}
inline std::vector<int> world_ranks(std::span<const int> parent, std::span<const int> members) {
    std::vector<int> ranks;
    for (const int m : members) ranks.push_back(parent[static_cast<std::size_t>(m)]);
    return ranks;
}

/// Throws precondition_error unless there may be so many roots of a broadcast.
inline void require_roots(const char* transport, int roots, int size) {
    if (roots >= 1 && roots <= size) return;
    throw precondition_error(transport, "a broadcast from 1 to " + std::to_string(size) + " ranks",
                             std::to_string(roots));
}

/// Throws precondition_error where there is a problem.
inline void require_no_problem(const collective_call& call, const std::string& problem) {
    if (!problem.empty()) throw precondition_error(call.primitive.str() + ": " + problem);
}
}  // namespace detail

/// Tells `transport` that a collective begins. `problem` says what is wrong with this rank's arguments, or is empty.
/// A transport that watches has a member `begin` of the same arguments; any other only throws precondition_error where
/// there is a problem.
template <class T>
void begin_collective(T& transport, const collective_call& call, const std::string& problem) {
    if constexpr (requires { transport.begin(call, problem); }) {
        transport.begin(call, problem);
    } else {
        detail::require_no_problem(call, problem);
    }
}

/// Blocks until `exec` has completed all its work, operations of `transport` among it; throws what that work threw. A
/// transport whose operations may not come to an end by themselves has a member `wait` that sees to it.
template <class T, execution E>
void wait_for(T& transport, const E& exec) {
    if constexpr (requires { transport.wait(exec); }) {
        transport.wait(exec);
    } else {
        exec.wait();
    }
}

}  // namespace zeropp
