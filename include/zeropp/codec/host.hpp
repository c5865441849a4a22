#pragma once
/// \file
/// The codec of host executions.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/exact.hpp>
#include <zeropp/codec/host/read.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/write.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace zeropp {

namespace detail {

/// Address of the threads that divide the work of `exec`; null if `exec` has none.
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

ZEROPP_DETAIL_INLINE_BEGIN

/// Calls f(i) for i in [first, first + count), compiled for the instruction set in use.
template <class F>
void each_in_part(std::size_t first, std::size_t count, const F& f) {
    for_each_piece_on_target<piece_size, 8>(count, [=](std::size_t begin, auto n) {
        for (std::size_t i = 0; i != n; ++i) f(first + begin + i);
    });
}

ZEROPP_DETAIL_INLINE_END

/// Calls f(i) for i in [0, n), divided among `threads`, or on this thread if `threads` is null. The type of the
/// execution is no template parameter, so all host executions share one function.
template <class F>
void each_element(std::size_t n, const F& f, const host_threads* threads) {
    const slices all = slices::single(n, 0, n);
    divide(threads, all, [&](const share& mine) {
        for_each_part(all, part_order::tensors, mine,
                      [&](const section_part& part) { each_in_part(part.first, part.count, f); });
    });
}

}  // namespace detail

/// The codec of host executions. Runs when the execution runs enqueued work, on one thread or divided among the
/// execution's threads. Uses the best instruction set that the processor has (host/target.hpp), whatever -march says.
/// Forms no pointer into a tensor for a slot without elements, because the slot's offset may lie beyond the tensor. So
/// a tensor may be null if no slot has elements.
template <host_execution E>
struct codec<E> {
    template <quantizer Q, class Source, class Slices, class Residuals = none>
    static void write(const E& exec, const Q& q, const Source& source, const Slices& where, std::byte* messages,
                      const Residuals& residuals = {}) {
        detail::without_shared_rotation(q, source, [&](const auto& to, const auto& from) {
            exec.enqueue([=, threads = detail::threads_of(exec)] {
                detail::write_slots(to, from, where, messages, residuals, threads);
            });
        });
    }

    template <quantizer Q, class Tensor, class Slices>
    static void read(const E& exec, const message_sum<Q>& source, const Slices& where, Tensor tensor,
                     epilogue last = {}) {
        exec.enqueue([=, threads = detail::threads_of(exec)] {
            detail::read_slots<false>(source, where, tensor, last, threads);
        });
    }
    template <quantizer Q, class Tensor, class Slices>
    static void read(const E& exec, const one_message<Q>& source, const Slices& where, Tensor tensor) {
        exec.enqueue(
            [=, threads = detail::threads_of(exec)] { detail::read_slots<true>(source, where, tensor, {}, threads); });
    }

    template <class Tensor, class Base, class Slices>
        requires(detail::exact_element<detail::element_at<Base>>)
    static void write_exact(const E& exec, const difference<Tensor, Base>& source, const Slices& where, std::byte* room,
                            std::uint64_t* size) {
        exec.enqueue(
            [=, threads = detail::threads_of(exec)] { detail::write_exact_slot(source, where, room, size, threads); });
    }

    template <class Slices>
    static void place_exact(const E& exec, const Slices& where, const std::byte* room, std::byte* message,
                            std::size_t bytes) {
        exec.enqueue([=] { detail::place_exact_slot(where, room, message, bytes); });
    }

    template <class Slices, class Base>
    static void read_exact(const E& exec, const std::byte* messages, std::size_t stride, const Slices& where,
                           Base base) {
        exec.enqueue([=, threads = detail::threads_of(exec)] {
            detail::read_exact_slots(messages, stride, where, base, threads);
        });
    }

    template <class F>
    static void each(const E& exec, std::size_t n, const F& f) {
        exec.enqueue([=, threads = detail::threads_of(exec)] { detail::each_element(n, f, threads); });
    }
};

}  // namespace zeropp
