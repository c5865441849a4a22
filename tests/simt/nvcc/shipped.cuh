#pragma once
/// \file
/// The kernels of one quantizer as users get them: every element type, the numbers of contributors that are instances of
/// their own, and sums into the quantizers that it is used with.

#include <zeropp/codec/cuda.cuh>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/lossless.hpp>

namespace shipped {

using stream = zeropp::cuda_stream;
using codec = zeropp::codec<stream>;

template <class Q, class T>
struct tensors {
    static void instantiate(const stream& s, const Q& q, T* tensor, const zeropp::slices& where, std::byte* messages) {
        codec::encode(s, q, static_cast<const T*>(tensor), where, messages);
        codec::reduce_decode(s, q, static_cast<const std::byte*>(messages), 1, where, tensor, {});
    }
};

template <class Q, class... To>
struct sums {
    static void instantiate(const stream& s, const Q& q, const zeropp::slices& where, const std::byte* in, std::byte* out) {
        (codec::reduce_encode(s, q, in, 1, where, To(), out), ...);
    }
};

}  // namespace shipped

/// The kernels of quantizer Q, and its sums into the quantizers that follow.
#define ZEROPP_SHIPPED(Q, ...)                                                                                         \
    template struct shipped::tensors<Q, float>;                                                                        \
    template struct shipped::tensors<Q, zeropp::half>;                                                                 \
    template struct shipped::tensors<Q, zeropp::bfloat16>;                                                             \
    template struct shipped::sums<Q, __VA_ARGS__>;
