#pragma once
/// \file
/// The base class of decorators: transports around another one.

#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/transport.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace zeropp {

/// Base of the decorator `Derived`: a transport that forwards every call to a wrapped transport of type `Inner`.
/// Copyable if `Inner` is. `Derived` changes a call by a member of equal name, mostly one of these:
///   `move`                   runs an operation that moves bytes; calls adaptor::move to forward the operation
///   `around(next, members)`  returns a `Derived` that wraps `next`, a transport of this transport's ranks `members`,
///                            after a split or a shrink. By default, constructs a `Derived` from `next` alone. If
///                            private, `Derived` must declare the adaptor a friend
template <class Derived, class Inner>
class adaptor : public operations<Derived> {
public:
    int rank() const { return inner_.rank(); }
    int size() const { return inner_.size(); }

    template <execution E>
    void move(const E& exec, const operation& what, const std::byte* send, std::byte* recv) {
        detail::run_operation(inner_, exec, what, send, recv);
    }

    /// True if the wrapped transport can broadcast on executions of type E.
    template <execution E>
    bool broadcasts() const {
        return can_broadcast<E>(inner_);
    }

    Derived split(std::span<const int> members) { return self().around(inner_.split(members), members); }

    /// Shrinks the wrapped transport after a failure, see shrinkable_transport. Returns a `Derived` around the
    /// survivors' transport, and the survivors' ranks on this transport.
    shrunk<Derived> shrink(std::span<const int> excluded = {})
        requires shrinkable_transport<Inner>
    {
        auto [next, survivors] = inner_.shrink(excluded);
        return {self().around(std::move(next), survivors), std::move(survivors)};
    }

    /// Tells the wrapped transport that the collective `call` begins, see begin_collective.
    void begin(const collective_call& call, const std::string& problem) { begin_collective(inner_, call, problem); }

    /// Blocks until `exec` has completed its work, by the wrapped transport's `wait` if there is one.
    template <execution E>
    void wait(const E& exec) {
        wait_for(inner_, exec);
    }

protected:
    explicit adaptor(Inner inner) : inner_(std::move(inner)) {}

    static Derived around(Inner next, std::span<const int> /*members*/) { return Derived(std::move(next)); }

    /// The wrapped transport.
    Inner& inner() { return inner_; }

private:
    Derived& self() { return static_cast<Derived&>(*this); }

    Inner inner_;
};

}  // namespace zeropp
