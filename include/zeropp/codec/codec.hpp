#pragma once
/// \file
/// The codec concept: turns elements into messages and messages into elements.

#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>

namespace zeropp {

/// Error feedback: keeps each element's quantization error (its residual) as messages of the quantizer `Storage`, and
/// adds it to that element the next time. If the quantizer rotates, residuals are of rotated elements.
///   h = element + previous;  message = encode(h);  next = h - decode(message)
/// If `next` is not finite, `previous` stays, or zero if that is not finite either: an overflow does not outlive its
/// step. (A finite h that only a later hop overflows leaves its `next`.) A block of `Storage` has at most 1024
/// elements, or as many as the quantizer's if that is more.
template <quantizer Storage>
struct feedback {
    /// The quantizer that stores residuals.
    Storage storage;
    /// Residuals of slot s at byte s * wire_bytes(storage, slice, last), for its whole shard. nullptr stands for zeros.
    const std::byte* previous;
    /// Destination of the new residuals; may be `previous`.
    std::byte* next;
    /// Elements of a slot's shard. If Storage's blocks have parameters, every section's `begin` begins one of them.
    std::size_t slice;
    /// For a list: place of the last tensor in a message of whole shards. `slice` then counts that tensor's elements.
    message_place last{};
};

namespace detail {
/// Returns `error`, or the residual `old` from before if `error` is not finite.
constexpr ZEROPP_HOST_DEVICE inline float next_residual(float old, float error) {
    return is_finite(error) ? error : finite_or_zero(old);
}
}  // namespace detail

/// The difference `tensor` - `base` of two tensors, or of two tables, to be encoded in place of a tensor. Elements of
/// `base` that are not finite count as zero, so that one such step does not last.
template <class Tensor, class Base>
struct difference {
    Tensor tensor;
    Base base;
};
template <class Tensor, class Base>
difference(Tensor, Base) -> difference<Tensor, Base>;

namespace detail {
/// Tensor i of a list, or the only tensor.
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

/// Source of values: for each slot, the sum of its messages over `contributors`, divided by `divisor`. Message
/// c * where.slots + s is contributor c's for slot s. Sums are float, in contributor order. If the quantizer rotates,
/// rotated values are summed. Their sum is rotated back once. But a sum that is encoded with windows of the same size
/// stays rotated. A single message is the sum over one contributor.
template <quantizer Q>
struct message_sum {
    Q quantizer;
    const std::byte* messages;
    int contributors = 1;
    float divisor = 1.0f;
};
template <class Q, class... More>
message_sum(Q, More...) -> message_sum<Q>;

/// A message_sum of one message, to replace elements: `read` compiles no loop of sums for it.
template <quantizer Q>
struct one_message : message_sum<Q> {
    one_message(const Q& q, const std::byte* from) : message_sum<Q>{q, from} {}
};

/// Treatment of an element's old value by `read`.
struct epilogue {
    /// Adds to the old value instead of replacing it.
    bool accumulate = false;
    /// An old value that is not finite counts as 0, as in a `difference` to it.
    bool drop_non_finite = false;
};

namespace detail {
/// Adds a decoded `difference` to its base.
inline constexpr epilogue add_difference{.accumulate = true, .drop_non_finite = true};

template <class Source>
inline constexpr bool is_message_sum = false;
template <class Q>
inline constexpr bool is_message_sum<message_sum<Q>> = true;

/// Calls use(quantizer, source) to write `source` by `q`. Neither rotates if both would in windows of the same size.
template <quantizer Q, class Source, class Use>
void without_shared_rotation(const Q& q, const Source& source, Use use) {
    use(q, source);
}
template <rotating_quantizer Q, rotating_quantizer From, class Use>
    requires(Q::hadamard_size == From::hadamard_size)
void without_shared_rotation(const Q& q, const message_sum<From>& sum, Use use) {
    using from = typename unrotated<From>::type;
    use(typename unrotated<Q>::type{q},
        message_sum<from>{{sum.quantizer}, sum.messages, sum.contributors, sum.divisor});
}
}  // namespace detail

/// The codec of an execution, specialised for each kind by the headers in codec/. All functions are static, enqueue
/// their work on `exec`, and work on the memory of its space. `where` is `slices` of one tensor or `list_slices`. In a
/// buffer of messages, slot s is at byte s * wire_bytes(q, where.last_count(), where.last()).
///   `write(exec, q, source, where, messages, residuals = none{})`
///       slot s <- elements that `where` names, of a tensor, a `tensor_table` or a `difference`; or a `message_sum`.
///       Adds and keeps `residuals` if they are a `feedback`. Bytes of a slot without an element are zero
///   `read(exec, source, where, tensor, epilogue = {})`
///       the elements of `tensor` that `where` names <- slot s of a `message_sum`
///   `each(exec, n, f)`
///       f(i) for every i < n, in any order. f is a trivially copyable function object that runs in the space. Only
///       collectives that update elements need this function
template <class E>
struct codec;

/// An execution with a codec for quantizer Q and elements T.
template <class E, class Q, class T>
concept codec_execution = execution<E> && quantizer<Q> && element<T> &&
                          requires(const E& exec, const Q& q, const T* source, T* tensor, const slices& where,
                                   std::byte* messages, const message_sum<Q>& sum) {
                              codec<E>::write(exec, q, source, where, messages);
                              codec<E>::write(exec, q, sum, where, messages);
                              codec<E>::read(exec, sum, where, tensor, epilogue());
                          };

}  // namespace zeropp
