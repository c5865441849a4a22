#pragma once
/// \file
/// The codec concept: who turns elements into messages and back.

#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/slice_order.hpp>

#include <cstddef>

namespace zeropp {

/// Encoding without error feedback.
struct no_feedback {};

/// Error feedback: what quantization loses of an element is kept, as messages of a quantizer `Storage`, and added to the
/// same element the next time. In the domain of the quantizer: rotated, if it rotates.
///   h = element + rescale * held;  message = encode(h);  kept = decay * rescale * held + (1 - decay) * (h - decode(message))
/// Where that is not finite, what was held is kept, or zero if rescale took that beyond a float, so that an overflow does
/// not outlive its step. Storage's blocks are not larger than 1024 elements or the quantizer's, whichever is more.
template <quantizer Storage>
struct feedback {
    static_assert(!message_scaled_quantizer<Storage>,
                  "feedback: Storage must not scale whole messages, for residuals are kept in parts");

    Storage storage;
    /// The residuals of slot s, all of its slice, at byte s * wire_bytes(storage, slice). nullptr stands for zeros.
    const std::byte* held;
    /// Where the new ones go; may be `held`.
    std::byte* kept;
    /// Elements of a slot's slice, of which `where.begin` is one, the first of a block of Storage.
    std::size_t slice;
    /// What was held is in units of an earlier loss scale: the new one / the old one.
    float rescale = 1.0f;
    /// How much of what was held stays: 0 for plain error feedback, more for a moving average.
    float decay = 0.0f;
};

namespace detail {
/// What is kept for an element, `old` being rescale * held.
constexpr ZEROPP_HOST_DEVICE inline float next_residual(float old, float error, float decay) {
    const float next = product(old, decay) + product(error, 1.0f - decay);
    const float last_finite = is_finite(old) ? old : 0.0f;
    return is_finite(next) ? next : last_finite;
}
}  // namespace detail

/// Elements of a tensor less those of another one: encoding them in place of a tensor.
template <element T, element Base>
struct difference {
    const T* tensor;
    const Base* base;
};

/// The codec of an execution; specialised for each kind of execution by the headers in codec/. All functions are
/// static, enqueue their work on `exec`, and work on the memory of its space. In a buffer of messages, slot s of
/// `where` is at byte s * wire_bytes(q, where.count); sums over contributors are float, in contributor order, and for a
/// quantizer that rotates taken before they are rotated back.
///   `encode(exec, q, tensor, where, messages, residuals = no_feedback{})`
///       slot s <- elements of `tensor` that `where` names, or of a `difference`, with error feedback if asked for. What a
///       slot has no elements for is zero.
///   `decode(exec, q, messages, where, tensor)`
///       the elements of `tensor` that `where` names <- slot s
///   `reduce_encode(exec, from, messages, contributors, where, to, sums, residuals = no_feedback{})`
///       slot s of `sums` <- the sum over c of slot s of the c-th group of `where.slots` messages, quantized by `to`
///   `reduce_decode(exec, from, messages, contributors, where, tensor, finish)`
///       the elements of `tensor` <- finish of the same sum
///   `squared_error(exec, tensor, decoded, n, energies)`
///       energies[0] <- the sum of the squares of n elements, energies[1] <- of their differences to n floats. In
///       double; the order of the sums is the codec's own
template <class E>
struct codec;

/// What happens to a sum of floats on its way into an element: sum / divisor, and added to what is there if asked for.
struct finish {
    float divisor = 1.0f;
    bool accumulate = false;
};

/// An execution whose codec handles quantizer Q on elements T.
template <class E, class Q, class T>
concept codec_execution = execution<E> && quantizer<Q> && element<T> &&
    requires(const E& exec, const Q& q, const T* source, T* tensor, const slices& where, const std::byte* messages,
             std::byte* out, int contributors, finish f) {
    codec<E>::encode(exec, q, source, where, out);
    codec<E>::decode(exec, q, messages, where, tensor);
    codec<E>::reduce_encode(exec, q, messages, contributors, where, q, out);
    codec<E>::reduce_decode(exec, q, messages, contributors, where, tensor, f);
};

}  // namespace zeropp
