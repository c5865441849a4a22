#pragma once
/// \file
/// A transport chosen at run time, so that a program compiles its collectives once for all transports.

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>

namespace zeropp_bench {

/// Holds any transport of these executions; costs an indirect call for each operation. Copies are the same transport.
template <class... Executions>
class any_transport {
public:
    template <class T>
    explicit any_transport(std::shared_ptr<T> held)
        : rank_(held->rank()), size_(held->size()), operations_{operations_of<Executions>(held)...},
          split_([held](std::span<const int> members) {
              return any_transport(std::make_shared<T>(held->split(members)));
          }),
          begin_([held](const zeropp::collective_call& call, const std::string& problem) {
              zeropp::begin_collective(*held, call, problem);
          }) {}

    int rank() const { return rank_; }
    int size() const { return size_; }

    template <class E>
    requires(std::same_as<E, Executions> || ...) void all_gather(const E& exec, const std::byte* send, std::byte* recv,
                                                                 std::size_t bytes) {
        std::get<operations<E>>(operations_).all_gather(exec, send, recv, bytes);
    }
    template <class E>
    requires(std::same_as<E, Executions> || ...) void all_to_all(const E& exec, const std::byte* send, std::byte* recv,
                                                                 std::size_t bytes) {
        std::get<operations<E>>(operations_).all_to_all(exec, send, recv, bytes);
    }

    any_transport split(std::span<const int> members) { return split_(members); }

    void begin(const zeropp::collective_call& call, const std::string& problem) { begin_(call, problem); }

private:
    template <class E>
    struct operations {
        using move = std::function<void(const E&, const std::byte*, std::byte*, std::size_t)>;
        move all_gather;
        move all_to_all;
    };

    template <class E, class T>
    static operations<E> operations_of(const std::shared_ptr<T>& held) {
        return {[held](const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
                    held->all_gather(exec, send, recv, bytes);
                },
                [held](const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
                    held->all_to_all(exec, send, recv, bytes);
                }};
    }

    int rank_;
    int size_;
    std::tuple<operations<Executions>...> operations_;
    std::function<any_transport(std::span<const int>)> split_;
    std::function<void(const zeropp::collective_call&, const std::string&)> begin_;
};

using any_host_transport = any_transport<zeropp::host, zeropp::host_queue>;

static_assert(zeropp::transport_on<any_host_transport, zeropp::host>);
static_assert(zeropp::transport_on<any_host_transport, zeropp::host_queue>);

}  // namespace zeropp_bench
