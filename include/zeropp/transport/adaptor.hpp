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

/// Base of the transport `Derived`, which wraps an `Inner`. Copyable if `Inner` is. Forwards every call to the wrapped
/// transport. `Derived` hides members to change them, mostly these:
///   `move`    each operation that moves bytes; calls adaptor::move to forward the operation
///   `around(next, members)`  the `Derived` around `next`, a transport of `members`, ranks of this one: of a split, or
///                            survivors. Unless hidden, makes `Derived` of `next` alone. If private, the adaptor is a
///                            friend
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

    /// A `Derived` around the survivors' transport, and their ranks on this transport. See shrinkable_transport.
    shrunk<Derived> shrink(std::span<const int> excluded = {})
        requires shrinkable_transport<Inner>
    {
        auto [next, survivors] = inner_.shrink(excluded);
        return {self().around(std::move(next), survivors), std::move(survivors)};
    }

    /// Tells the wrapped transport that a collective begins. See begin_collective.
    void begin(const collective_call& call, const std::string& problem) { begin_collective(inner_, call, problem); }

    /// Waits for `exec` as the wrapped transport does.
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
