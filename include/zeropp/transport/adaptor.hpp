#pragma once
/// \file
/// The base class of every transport around another one.

#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/transport.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace zeropp {

/// Forwards every call to `Inner`: the operations, `begin` and `wait`. A transport around another one derives from this
/// and hides the members that it changes, always including `split`, which returns the derived type. It has no `shrink`
/// unless the derived type has one. If it hides one operation that moves bytes, it must hide all three (all_gather,
/// all_to_all, broadcast), because the others would bypass it. Copyable if `Inner` is.
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
    void broadcast(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes, int roots)
        requires broadcasting_transport_on<Inner, E>
    {
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

    /// The wrapped transport.
    Inner& inner() { return inner_; }

private:
    Inner inner_;
};

}  // namespace zeropp
