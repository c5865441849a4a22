#pragma once
/// \file
/// The codec of host executions.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/decode.hpp>
#include <zeropp/codec/host/encode.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/execution/host_threads.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <concepts>
#include <cstddef>

namespace zeropp {

namespace detail {

/// Threads that divide the execution's work; nullptr if there are none.
template <host_execution E>
const host_threads* threads_of([[maybe_unused]] const E& exec) {
    if constexpr (requires {
                      { exec.threads() } -> std::convertible_to<const host_threads*>;
                  }) {
        return exec.threads();
    } else {
        return nullptr;
    }
}

}  // namespace detail

/// Runs in the execution's turn, on one thread or on the execution's threads. Uses the best target of host/target.hpp
/// that the processor has, whatever the program is compiled for. Forms no pointer into `tensor` for a slot without
/// elements, because its offset may lie beyond the tensor. So `tensor` may be null if no slot has any.
template <host_execution E>
struct codec<E> {
    template <quantizer Q, class Tensor, class Slices, class Residuals = no_feedback>
    static void encode(const E& exec, const Q& q, const Tensor& tensor, const Slices& where, std::byte* messages,
                       const Residuals& residuals = {}) {
        exec.enqueue([=, threads = detail::threads_of(exec)] {
            detail::encode_slots(q, tensor, where, messages, residuals, threads);
        });
    }

    template <quantizer Q, class Tensor, class Slices>
    static void decode(const E& exec, const Q& q, const std::byte* messages, const Slices& where, Tensor tensor) {
        exec.enqueue(
            [=, threads = detail::threads_of(exec)] { detail::decode_slots(q, messages, where, tensor, threads); });
    }

    template <quantizer From, quantizer To, class Slices, class Residuals = no_feedback, class Mean = undivided>
    static void reduce_encode(const E& exec, const From& from, const std::byte* messages, int contributors,
                              const Slices& where, const To& to, std::byte* sums, const Residuals& residuals = {},
                              const Mean& mean = {}) {
        exec.enqueue([=, threads = detail::threads_of(exec)] {
            detail::reduce_encode_slots(from, messages, contributors, where, to, sums, residuals, mean, threads);
        });
    }

    template <quantizer From, class Tensor, class Slices>
    static void reduce_decode(const E& exec, const From& from, const std::byte* messages, int contributors,
                              const Slices& where, Tensor tensor, epilogue f) {
        exec.enqueue([=, threads = detail::threads_of(exec)] {
            detail::reduce_decode_slots(from, messages, contributors, where, tensor, f, threads);
        });
    }
};

}  // namespace zeropp
