#pragma once
/// \file
/// A transport chosen at run time, so that a program compiles its collectives once for all transports.

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/transport/transport.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace zeropp_bench {

/// Holds any transport of host executions; costs an indirect call for each operation.
class any_transport {
public:
    template <class T>
    explicit any_transport(std::shared_ptr<T> held) : held_(std::make_shared<model<T>>(std::move(held))) {}

    int rank() const { return held_->rank(); }
    int size() const { return held_->size(); }

    template <zeropp::host_execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        held_->all_gather(exec, send, recv, bytes);
    }
    template <zeropp::host_execution E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        held_->all_to_all(exec, send, recv, bytes);
    }

    any_transport split(std::span<const int> members) { return held_->split(members); }

    void begin(const zeropp::collective_call& call, const std::string& problem) { held_->begin(call, problem); }

private:
    struct operations {
        virtual ~operations() = default;
        virtual int rank() const = 0;
        virtual int size() const = 0;
        virtual void all_gather(const zeropp::host&, const std::byte*, std::byte*, std::size_t) = 0;
        virtual void all_gather(const zeropp::host_queue&, const std::byte*, std::byte*, std::size_t) = 0;
        virtual void all_to_all(const zeropp::host&, const std::byte*, std::byte*, std::size_t) = 0;
        virtual void all_to_all(const zeropp::host_queue&, const std::byte*, std::byte*, std::size_t) = 0;
        virtual any_transport split(std::span<const int> members) = 0;
        virtual void begin(const zeropp::collective_call& call, const std::string& problem) = 0;
    };

    template <class T>
    struct model final : operations {
        explicit model(std::shared_ptr<T> t) : held(std::move(t)) {}

        int rank() const override { return held->rank(); }
        int size() const override { return held->size(); }
        void all_gather(const zeropp::host& exec, const std::byte* send, std::byte* recv, std::size_t bytes) override {
            held->all_gather(exec, send, recv, bytes);
        }
        void all_gather(const zeropp::host_queue& exec, const std::byte* send, std::byte* recv,
                        std::size_t bytes) override {
            held->all_gather(exec, send, recv, bytes);
        }
        void all_to_all(const zeropp::host& exec, const std::byte* send, std::byte* recv, std::size_t bytes) override {
            held->all_to_all(exec, send, recv, bytes);
        }
        void all_to_all(const zeropp::host_queue& exec, const std::byte* send, std::byte* recv,
                        std::size_t bytes) override {
            held->all_to_all(exec, send, recv, bytes);
        }
        any_transport split(std::span<const int> members) override {
            return any_transport(std::make_shared<T>(held->split(members)));
        }
        void begin(const zeropp::collective_call& call, const std::string& problem) override {
            zeropp::begin_collective(*held, call, problem);
        }

        std::shared_ptr<T> held;
    };

    std::shared_ptr<operations> held_;
};

static_assert(zeropp::transport_on<any_transport, zeropp::host>);
static_assert(zeropp::transport_on<any_transport, zeropp::host_queue>);

}  // namespace zeropp_bench
