#pragma once
/// \file
/// The codec concept: turns elements into messages and messages into elements.

#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace zeropp {

/// Error feedback: keeps each element's quantization error, its residual, as messages of the quantizer `Storage`. Adds
/// the residual to that element in the next call. If the quantizer rotates, residuals are of rotated elements.
///   h = element + previous;  message = encode(h);  next = h - decode(message)
/// A `next` that is not finite is replaced by `previous`, or by zero if `previous` is not finite either. So an overflow
/// of h does not outlive its step. An overflow on a later hop does not change `next`. Blocks of `Storage` have at most
/// max(1024, the quantizer's block size) elements.
template <quantizer Storage>
struct feedback {
    /// The quantizer that stores residuals.
    Storage storage;
    /// Address of the old residuals, or null if these are zeros. The message with the residuals of slot s begins at
    /// byte s * wire_bytes(storage, slice, last).
    const std::byte* previous;
    /// Address where the new residuals are stored, in the layout of the old ones; may be the old residuals' address.
    std::byte* next;
    /// Number of elements of a slot's shard; for a list of tensors, of the last tensor's shard. If `Storage` has
    /// parameters, a section must begin a block of `Storage`.
    std::size_t slice;
    /// For a list of tensors: numbers of elements and of tensors before the last tensor in a message of whole shards.
    message_place last{};
};

namespace detail {
/// The residual to store: `error`, an element's quantization error. If `error` is not finite: `old`, the element's
/// previous residual, or 0 if that is not finite either.
constexpr ZEROPP_HOST_DEVICE inline float next_residual(float old, float error) {
    return is_finite(error) ? error : finite_or_zero(old);
}
}  // namespace detail

/// The difference `tensor` - `base` of two tensors, or of two `tensor_table`s, to be encoded in place of a tensor. An
/// element of `base` that is not finite counts as zero, so that an overflow in `base` ends with the next difference.
template <class Tensor, class Base>
struct difference {
    Tensor tensor;
    Base base;
};

namespace detail {
/// `tensor`, the only tensor of a call, for every index.
template <class T>
constexpr ZEROPP_HOST_DEVICE T* tensor_at(T* tensor, std::size_t) {
    return tensor;
}
/// Address of tensor i of a list.
template <class T>
constexpr ZEROPP_HOST_DEVICE T* tensor_at(const tensor_table<T>& list, std::size_t i) {
    return list.tensors[i];
}
/// The `difference` of the tensors with index i of two lists, or of the only two tensors.
template <class Tensor, class Base>
constexpr ZEROPP_HOST_DEVICE auto tensor_at(const difference<Tensor, Base>& d, std::size_t i) {
    return difference{tensor_at(d.tensor, i), tensor_at(d.base, i)};
}
/// Type of the elements of a tensor, or of the tensors of a list.
template <class Tensor>
using element_at = std::remove_cvref_t<decltype(*tensor_at(std::declval<Tensor>(), 0))>;
}  // namespace detail

/// Source of values: for each of a call's n slots, the sum of a message from each contributor, divided by `divisor`. In
/// `messages`, the message number c * n + s is from contributor c for slot s. Sums are float, in the order of
/// contributors. If `quantizer` rotates, rotated values are summed, and the sum is rotated back once. A sum that is
/// encoded with windows of the same size stays rotated. A single message is the sum over one contributor.
template <quantizer Q>
struct message_sum {
    Q quantizer;
    const std::byte* messages;
    int contributors = 1;
    float divisor = 1.0f;
};
template <class Q, class... More>
message_sum(Q, More...) -> message_sum<Q>;

/// A message_sum over one contributor, with divisor 1. With this type, `codec::read` replaces elements, and compiles no
/// loop over contributors.
template <quantizer Q>
struct one_message : message_sum<Q> {
    one_message(const Q& q, const std::byte* from) : message_sum<Q>{q, from} {}
};

/// Options of `codec::read` for the old values of the elements that it writes.
struct epilogue {
    /// True to add the decoded value to the old value; false to replace the old value.
    bool accumulate = false;
    /// True to count an old value that is not finite as 0, when the decoded value is added.
    bool drop_non_finite = false;
};

namespace detail {
/// Options by which `codec::read` adds a decoded `difference` to old values, which are the base of the difference.
inline constexpr epilogue add_difference{.accumulate = true, .drop_non_finite = true};

template <class Source>
inline constexpr bool is_message_sum = false;
template <class Q>
inline constexpr bool is_message_sum<message_sum<Q>> = true;

/// Calls use(q, source), for q to encode `source`.
template <quantizer Q, class Source, class Use>
void without_shared_rotation(const Q& q, const Source& source, Use use) {
    use(q, source);
}
/// Calls use(quantizer, sum) without the rotations of both, because the windows of q and of `sum` have one size: q's
/// rotation would undo the rotation back of the sum.
template <rotating_quantizer Q, rotating_quantizer From, class Use>
    requires(Q::hadamard_size == From::hadamard_size)
void without_shared_rotation(const Q& q, const message_sum<From>& sum, Use use) {
    using from = typename unrotated<From>::type;
    use(typename unrotated<Q>::type{q},
        message_sum<from>{{sum.quantizer}, sum.messages, sum.contributors, sum.divisor});
}
}  // namespace detail

/// The codec of an execution, specialised for each kind of execution by the headers in codec/. All functions are
/// static, and enqueue their work on `exec`. Arrays lie in the memory space of `exec`. `where` gives the elements of
/// each slot: a `slices` for one tensor, or a `list_slices` for a list. The message of slot s begins at byte
/// s * wire_bytes(q, where.last_count(), where.last()).
///   `write(exec, q, source, where, messages, residuals = none{})`
///       Encodes into each slot its elements, by `where`, of a tensor, a `tensor_table` or a `difference`; or the
///       slot's sum of a `message_sum`. With a `feedback` as `residuals`, adds old residuals and keeps new ones. Bytes
///       of a message that stand for no element become zero
///   `read(exec, source, where, tensor, epilogue = {})`
///       Decodes each slot's sum of the `message_sum` `source` into the slot's elements of `tensor`, by `where`
///   `write_exact(exec, difference, where, room, size)`
///       Encodes the elements of the only slot of `where` as exact_differences from the old elements, the difference's
///       base, in pieces in `room`. `room` has the most bytes of a message (format_of); `*size`, a std::uint64_t, gets
///       the number of bytes of the message. Old elements are bfloat16 or half; the tensor may have float elements,
///       which are rounded first
///   `place_exact(exec, where, room, message, bytes)`
///       Puts the pieces of `write_exact` together at `message`, another address, and clears the rest of its `bytes`
///       bytes
///   `read_exact(exec, messages, stride, where, base)`
///       Decodes exact_differences into each slot's elements of `base`, by `where`, which hold the old elements. The
///       message of slot s begins at byte s * `stride` and has at most `stride` bytes. If a message has other bytes,
///       the host throws integrity_error, perhaps with some elements written; a GPU makes NaN of all elements of each
///       tile with other bytes. Reads no message of a slot without elements
///   `each(exec, n, f)`
///       Calls f(i) for every i < n, in any order, on the host or the GPU. f is a trivially copyable function object.
///       Only collectives that update elements need this function
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

/// An execution with a codec for differences of elements T in the format Q.
template <class E, class Q, class T>
concept difference_codec =
    codec_execution<E, Q, T> || (execution<E> && std::same_as<Q, exact_differences> &&
                                 requires(const E& exec, const difference<const T*, T*>& source, const slices& where,
                                          std::byte* message, std::uint64_t* size, T* base) {
                                     codec<E>::write_exact(exec, source, where, message, size);
                                     codec<E>::place_exact(exec, where, message, message, std::size_t());
                                     codec<E>::read_exact(exec, message, std::size_t(), where, base);
                                 });

}  // namespace zeropp
