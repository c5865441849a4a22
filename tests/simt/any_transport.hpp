#pragma once
/// \file
/// A transport between devices of any type, so that what is expensive to compile is compiled once for all of them.

#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/transport/transport.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace zeropp_test::simt {

class any_transport {
public:
    template <zeropp::transport_on<zeropp::cuda_stream> Transport>
    static any_transport of(Transport transport) {
        return any_transport(std::make_unique<held<Transport>>(std::move(transport)));
    }

    int rank() const { return held_->rank(); }
    int size() const { return held_->size(); }

    void all_gather(const zeropp::cuda_stream& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        held_->all_gather(exec, send, recv, bytes);
    }
    void all_to_all(const zeropp::cuda_stream& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        held_->all_to_all(exec, send, recv, bytes);
    }
    any_transport split(std::span<const int> members) { return held_->split(members); }
    void begin(const zeropp::collective_call& call, const std::string& problem) { held_->begin(call, problem); }

private:
    struct any {
        virtual ~any() = default;
        virtual int rank() const = 0;
        virtual int size() const = 0;
        virtual void all_gather(const zeropp::cuda_stream&, const std::byte*, std::byte*, std::size_t) = 0;
        virtual void all_to_all(const zeropp::cuda_stream&, const std::byte*, std::byte*, std::size_t) = 0;
        virtual any_transport split(std::span<const int>) = 0;
        virtual void begin(const zeropp::collective_call&, const std::string&) = 0;
    };

    template <class Transport>
    struct held final : any {
        explicit held(Transport t) : transport(std::move(t)) {}
        int rank() const override { return transport.rank(); }
        int size() const override { return transport.size(); }
        void all_gather(const zeropp::cuda_stream& exec, const std::byte* send, std::byte* recv,
                        std::size_t bytes) override {
            transport.all_gather(exec, send, recv, bytes);
        }
        void all_to_all(const zeropp::cuda_stream& exec, const std::byte* send, std::byte* recv,
                        std::size_t bytes) override {
            transport.all_to_all(exec, send, recv, bytes);
        }
        any_transport split(std::span<const int> members) override { return of(transport.split(members)); }
        void begin(const zeropp::collective_call& call, const std::string& problem) override {
            zeropp::begin_collective(transport, call, problem);
        }

        Transport transport;
    };

    explicit any_transport(std::unique_ptr<any> inner) : held_(std::move(inner)) {}

    std::unique_ptr<any> held_;
};

static_assert(zeropp::transport_on<any_transport, zeropp::cuda_stream>);

}  // namespace zeropp_test::simt
