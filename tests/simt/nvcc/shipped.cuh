#pragma once
/// \file
/// The kernels of one quantizer as users get them: element types, the numbers of contributors that are instances
/// of their own, sums into the quantizers that it is used with, differences and error feedback.

#include <zeropp/codec/cuda.cuh>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

namespace shipped {

using stream = zeropp::cuda_stream;
using codec = zeropp::codec<stream>;

template <class Q, class... T>
struct encoded {
    static void instantiate(const stream& s, const Q& q, const void* tensor, const zeropp::slices& where,
                            std::byte* out) {
        (codec::write(s, q, static_cast<const T*>(tensor), where, out), ...);
    }
};

template <class Q, class T, class Base>
struct subtracted {
    static void instantiate(const stream& s, const Q& q, const T* tensor, const Base* base, const zeropp::slices& where,
                            std::byte* out) {
        codec::write(s, q, zeropp::difference{tensor, base}, where, out);
    }
};

template <class Q, class Storage, class T>
struct fed_back {
    static void instantiate(const stream& s, const Q& q, const T* tensor, const zeropp::slices& where, std::byte* out,
                            const zeropp::feedback<Storage>& memory) {
        codec::write(s, q, tensor, where, out, memory);
    }
};

template <class Q, class... T>
struct decoded {
    static void instantiate(const stream& s, const Q& q, const std::byte* in, const zeropp::slices& where,
                            void* tensor) {
        (codec::read(s, zeropp::message_sum{q, in, 1}, where, static_cast<T*>(tensor)), ...);
    }
};

template <class Q, class... To>
struct summed {
    static void instantiate(const stream& s, const Q& q, const zeropp::slices& where, const std::byte* in,
                            std::byte* out) {
        (codec::write(s, To(), zeropp::message_sum{q, in, 1}, where, out), ...);
    }
};

}  // namespace shipped
