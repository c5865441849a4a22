#pragma once
/// \file
/// A transport chosen at run time.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>

namespace zeropp {

/// A transport that holds a transport of any type for all execution types `Executions`. So a program compiles its
/// collectives once for all transports. Each operation costs an indirect call. Copies share the held transport.
template <execution... Executions>
class any_transport : public operations<any_transport<Executions...>> {
public:
    template <class T>
        requires(!std::same_as<T, any_transport>) && (transport_on<T, Executions> && ...)
    explicit any_transport(T held) : any_transport(std::make_shared<T>(std::move(held))) {}

    /// Holds the transport to which `held` points, shared with the pointer's other owners.
    template <class T>
        requires(transport_on<T, Executions> && ...)
    explicit any_transport(const std::shared_ptr<T>& held)
        : rank_(held->rank()), size_(held->size()), calls_{calls_of<Executions>(held)...},
          split_([held](std::span<const int> members) { return any_transport(held->split(members)); }),
          begin_([held](const collective_call& call, const std::string& problem) {
              begin_collective(*held, call, problem);
          }) {
        if constexpr (shrinkable_transport<T>) {
            shrink_ = [held](std::span<const int> excluded) -> shrunk<any_transport> {
                auto [next, survivors] = held->shrink(excluded);
                return {any_transport(std::move(next)), std::move(survivors)};
            };
        }
    }

    int rank() const { return rank_; }
    int size() const { return size_; }

    template <execution E>
        requires(std::same_as<E, Executions> || ...)
    void move(const E& exec, const operation& what, const std::byte* send, std::byte* recv) {
        std::get<calls<E>>(calls_).move(exec, what, send, recv);
    }

    /// True if the held transport can broadcast on executions of type E.
    template <execution E>
        requires(std::same_as<E, Executions> || ...)
    bool broadcasts() const {
        return std::get<calls<E>>(calls_).broadcasts;
    }

    any_transport split(std::span<const int> members) { return split_(members); }

    /// Transport of the survivors of a failure, see shrinkable_transport. Throws precondition_error if the held
    /// transport cannot shrink.
    shrunk<any_transport> shrink(std::span<const int> excluded = {}) {
        if (!shrink_) throw precondition_error("any_transport", "a transport that can shrink", "one that cannot");
        return shrink_(excluded);
    }

    /// Tells the held transport that the collective `call` begins, see begin_collective.
    void begin(const collective_call& call, const std::string& problem) { begin_(call, problem); }

    /// Blocks until `exec` has completed its work, by the held transport's `wait` if there is one.
    template <execution E>
        requires(std::same_as<E, Executions> || ...)
    void wait(const E& exec) {
        std::get<calls<E>>(calls_).wait(exec);
    }

private:
    template <class E>
    struct calls {
        std::function<void(const E&, const operation&, const std::byte*, std::byte*)> move;
        std::function<void(const E&)> wait;
        bool broadcasts;
    };

    template <class E, class T>
    static calls<E> calls_of(const std::shared_ptr<T>& held) {
        return {[held](const E& exec, const operation& what, const std::byte* send, std::byte* recv) {
                    detail::run_operation(*held, exec, what, send, recv);
                },
                [held](const E& exec) { wait_for(*held, exec); }, can_broadcast<E>(*held)};
    }

    int rank_;
    int size_;
    std::tuple<calls<Executions>...> calls_;
    std::function<any_transport(std::span<const int>)> split_;
    /// Function that shrinks the held transport; empty if that transport cannot shrink.
    std::function<shrunk<any_transport>(std::span<const int>)> shrink_;
    std::function<void(const collective_call&, const std::string&)> begin_;
};

}  // namespace zeropp
