#pragma once
/// \file
/// What every transport around another one stands on.

#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/transport.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace zeropp {

/// Passes everything on to `Inner`: the operations, and what transports inside have to hear of to watch, `begin` and
/// `wait`. A transport around another one derives from it, has its own version of what it changes, which hides this
/// one's, and `split`, whose result is of its own type. One that has its own version of an operation that moves bytes
/// needs one of each: all_gather, all_to_all and broadcast, since those that it leaves out go past it. Copies where
/// Inner does.
template <class Inner>
class adaptor {
public:
    int rank() const { return inner_.rank(); }
    int size() const { return inner_.size(); }

    template <execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        inner_.all_gather(exec, send, recv, bytes);
    }

    template <execution E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        inner_.all_to_all(exec, send, recv, bytes);
    }

    template <execution E>
    void broadcast(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes,
                   int roots) requires broadcasting_transport_on<Inner, E> {
        inner_.broadcast(exec, send, recv, bytes, roots);
    }

    /// See can_broadcast.
    template <execution E>
    bool broadcasts() const {
        return can_broadcast<E>(inner_);
    }

    /// See begin_collective.
    void begin(const collective_call& call, const std::string& problem) { begin_collective(inner_, call, problem); }

    /// See wait_for.
    template <execution E>
    void wait(const E& exec) {
        wait_for(inner_, exec);
    }

protected:
    explicit adaptor(Inner inner) : inner_(std::move(inner)) {}

    /// The transport inside.
    Inner& inner() { return inner_; }

private:
    Inner inner_;
};

}  // namespace zeropp
