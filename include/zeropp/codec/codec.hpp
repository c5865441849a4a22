#pragma once
/// \file
/// The codec concept: who turns elements into messages and back.

#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/message_place.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/slices.hpp>

#include <cstddef>

namespace zeropp {

/// Encoding without error feedback.
struct no_feedback {};

/// Error feedback: the quantization error of an element is kept, in messages of a quantizer `Storage`, and added to the
/// same element the next time. In the domain of the quantizer: rotated, if it rotates.
///   h = element + previous;  message = encode(h);  next = h - decode(message)
/// If `next` is not finite, `previous` stays, or zero if it is not finite either: an overflow does not outlive its
/// step. Storage's blocks are not larger than 1024 elements or the quantizer's, whichever is more.
template <quantizer Storage>
struct feedback {
    static_assert(!message_scaled_quantizer<Storage>,
                  "feedback: Storage must not scale whole messages, for residuals are kept in parts");

    /// The quantizer that stores residuals.
    Storage storage;
    /// The residuals of slot s, all of its slice, at byte s * wire_bytes(storage, slice). nullptr stands for zeros.
    const std::byte* previous;
    /// Where the new ones go; may be `previous`.
    std::byte* next;
    /// Elements of a slot's slice, of which every section's `begin` is one, the first of a block of Storage.
    std::size_t slice;
    /// Of a list of tensors, the place of the last, whose elements `slice` are.
    message_place last{};
};

namespace detail {
/// Returns `error`, or the residual `old` from before if `error` is not finite.
constexpr ZEROPP_HOST_DEVICE inline float next_residual(float old, float error) {
    return is_finite(error) ? error : finite_or_zero(old);
}
}  // namespace detail

/// The tensors of a list, in the memory of the execution: in place of one tensor, where `where` is list_slices.
template <class T>
struct tensor_table {
    T* const* tensors;
};

/// Elements of a tensor less those of another one, or of a table of tensors less those of another: encoding them in
/// place of a tensor. Elements of the base that are not finite count as zero, so that one such step does not last.
template <class Tensor, class Base>
struct difference {
    Tensor tensor;
    Base base;
};
template <class Tensor, class Base>
difference(Tensor, Base) -> difference<Tensor, Base>;

namespace detail {
/// The i-th of one tensor, or of the tensors of a list.
template <class T>
constexpr ZEROPP_HOST_DEVICE T* tensor_at(T* tensor, std::size_t) {
    return tensor;
}
template <class T>
constexpr ZEROPP_HOST_DEVICE T* tensor_at(const tensor_table<T>& list, std::size_t i) {
    return list.tensors[i];
}
template <class Tensor, class Base>
constexpr ZEROPP_HOST_DEVICE auto tensor_at(const difference<Tensor, Base>& d, std::size_t i) {
    return difference{tensor_at(d.tensor, i), tensor_at(d.base, i)};
}
}  // namespace detail

/// The codec of an execution; specialised for each kind of execution by the headers in codec/. All functions are
/// static, enqueue their work on `exec`, and work on the memory of its space. `where` is `slices` of one tensor or
/// `list_slices`; in a buffer of messages, its slot s is at byte s * wire_bytes(q, where.last_count(), where.last()).
/// Sums over contributors are float, in contributor order, and for a quantizer that rotates taken before they are
/// rotated back.
///   `encode(exec, q, tensor, where, messages, residuals = no_feedback{})`
///       slot s <- elements of `tensor` that `where` names, or of a `difference`, or of the tensors of a
///       `tensor_table`, with error feedback if asked for. What a slot has no elements for is zero.
///   `decode(exec, q, messages, where, tensor)`
///       the elements of `tensor` that `where` names <- slot s
///   `reduce_encode(exec, from, messages, contributors, where, to, sums, residuals = no_feedback{},
///                  mean = undivided{})`
///       slot s of `sums` <- the sum over c of slot s of the c-th group of `where.slots` messages, divided if `mean` is
///       a `divided_by`, and quantized by `to`
///   `reduce_decode(exec, from, messages, contributors, where, tensor, epilogue)`
///       the elements of `tensor` <- epilogue of the same sum
template <class E>
struct codec;

/// What happens to sums that are encoded again: nothing, or each is divided by a number.
struct undivided {};
struct divided_by {
    float divisor;
};

/// What happens to a sum of floats on its way into an element: sum / divisor, and added to what is there if asked for.
struct epilogue {
    float divisor = 1.0f;
    bool accumulate = false;
    /// Adds to zero where the element is not finite, as a `difference` to it was taken.
    bool drop_non_finite = false;
};

namespace detail {
/// Adds a decoded `difference` to its base.
inline constexpr epilogue add_difference{.divisor = 1.0f, .accumulate = true, .drop_non_finite = true};
}  // namespace detail

/// An execution whose codec handles quantizer Q on elements T.
template <class E, class Q, class T>
concept codec_execution = execution<E> && quantizer<Q> && element<T> &&
    requires(const E& exec, const Q& q, const T* source, T* tensor, const slices& where, const std::byte* messages,
             std::byte* out, int contributors, epilogue f) {
    codec<E>::encode(exec, q, source, where, out);
    codec<E>::decode(exec, q, messages, where, tensor);
    codec<E>::reduce_encode(exec, q, messages, contributors, where, q, out);
    codec<E>::reduce_decode(exec, q, messages, contributors, where, tensor, f);
};

}  // namespace zeropp
