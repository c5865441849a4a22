#pragma once
/// \file
/// The codec concept: who turns elements into messages and back.

#include <zeropp/core/element.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/slice_order.hpp>

#include <cstddef>

namespace zeropp {

/// The codec of an execution; specialised for each kind of execution by the headers in codec/. All functions are
/// static, enqueue their work on `exec`, and work on the memory of its space. In a buffer of messages, slot s of
/// `where` is at byte s * wire_bytes(q, where.count); sums over contributors are float, in contributor order.
///   `encode(exec, q, tensor, where, messages)`
///       slot s <- elements of `tensor` that `where` names. What a slot has no elements for is zero.
///   `decode(exec, q, messages, where, tensor)`
///       the elements of `tensor` that `where` names <- slot s
///   `reduce_encode(exec, from, messages, contributors, where, to, sums)`
///       slot s of `sums` <- the sum over c of slot s of the c-th group of `where.slots` messages, quantized by `to`
///   `reduce_decode(exec, from, messages, contributors, where, tensor, finish)`
///       the elements of `tensor` <- finish of the same sum
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
