#pragma once
/// \file
/// A transport chosen at run time.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/execution.hpp>
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

/// Holds any transport for `Executions`, so that a program compiles its collectives once. Costs an indirect call for
/// each operation. Copies share the held transport.
template <execution... Executions>
class any_transport {
public:
    template <class T>
        requires(!std::same_as<T, any_transport>) && (transport_on<T, Executions> && ...)
    explicit any_transport(T held) : any_transport(std::make_shared<T>(std::move(held))) {}

    /// Shares a transport with other holders.
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
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        std::get<calls<E>>(calls_).all_gather(exec, send, recv, bytes);
    }
    template <execution E>
        requires(std::same_as<E, Executions> || ...)
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        std::get<calls<E>>(calls_).all_to_all(exec, send, recv, bytes);
    }

    template <execution E>
        requires(std::same_as<E, Executions> || ...)
    void broadcast(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes, int roots) {
        if (!broadcasts<E>())
            throw precondition_error("any_transport", "a transport that can broadcast", "one that cannot");
        std::get<calls<E>>(calls_).broadcast(exec, send, recv, bytes, roots);
    }

    /// See can_broadcast.
    template <execution E>
        requires(std::same_as<E, Executions> || ...)
    bool broadcasts() const {
        return std::get<calls<E>>(calls_).broadcast != nullptr;
    }

    any_transport split(std::span<const int> members) { return split_(members); }

    /// Throws precondition_error if the held transport cannot shrink.
    shrunk<any_transport> shrink(std::span<const int> excluded = {}) {
        if (!shrink_) throw precondition_error("any_transport", "a transport that can shrink", "one that cannot");
        return shrink_(excluded);
    }

    /// See begin_collective.
    void begin(const collective_call& call, const std::string& problem) { begin_(call, problem); }

    /// See wait_for.
    template <execution E>
        requires(std::same_as<E, Executions> || ...)
    void wait(const E& exec) {
        std::get<calls<E>>(calls_).wait(exec);
    }

private:
    template <class E>
    struct calls {
        using move = std::function<void(const E&, const std::byte*, std::byte*, std::size_t)>;
        move all_gather;
        move all_to_all;
        std::function<void(const E&)> wait;
        /// Empty if the held transport cannot broadcast.
        std::function<void(const E&, const std::byte*, std::byte*, std::size_t, int)> broadcast;
    };

    template <class E, class T>
    static calls<E> calls_of(const std::shared_ptr<T>& held) {
        calls<E> of{[held](const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
                        held->all_gather(exec, send, recv, bytes);
                    },
                    [held](const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
                        held->all_to_all(exec, send, recv, bytes);
                    },
                    [held](const E& exec) { wait_for(*held, exec); },
                    {}};
        if constexpr (broadcasting_transport_on<T, E>) {
            if (can_broadcast<E>(*held)) {
                of.broadcast = [held](const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes,
                                      int roots) { held->broadcast(exec, send, recv, bytes, roots); };
            }
        }
        return of;
    }

    int rank_;
    int size_;
    std::tuple<calls<Executions>...> calls_;
    std::function<any_transport(std::span<const int>)> split_;
    /// Empty if the held transport cannot shrink.
    std::function<shrunk<any_transport>(std::span<const int>)> shrink_;
    std::function<void(const collective_call&, const std::string&)> begin_;
};

}  // namespace zeropp
