/// \file
/// The codec's kernels on tensors of half as C functions, for bench/compare_deepspeed.py, which compiles and loads
/// them. Pointers are device memory; `quantizer` is a name such as "int8:256". Each function enqueues on `stream` and
/// returns nullptr, or an error text that is valid until the thread's next call.

#include <zeropp/cuda.cuh>

#include <cstddef>
#include <exception>
#include <string>
#include <variant>

namespace {

using codec = zeropp::codec<zeropp::cuda_stream>;
using quantizers = zeropp::named_quantizers<zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::bfloat16>,
                                            zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>,
                                            zeropp::block_integer<8, 256>, zeropp::block_integer<4, 128>>;

/// Shards of a tensor of n elements, in the order of the first hop on `nodes` nodes of `devices` ranks.
zeropp::slices reordered(std::size_t n, int nodes, int devices) {
    const zeropp::partition part(n, nodes * devices);
    return {part, {nodes, devices, 1, nullptr}, 0, part.slice_size(), 0, part.ranks()};
}

/// Calls f(stream, quantizer), and returns the text of an exception, because callers are C.
template <class F>
const char* enqueue(const char* quantizer, cudaStream_t stream, F f) {
    thread_local std::string problem;
    try {
        const zeropp::cuda_stream borrowed(stream);
        std::visit([&](const auto& q) { f(borrowed, q); }, quantizers::parse(quantizer));
        return nullptr;
    } catch (const std::exception& e) {
        problem = e.what();
        return problem.c_str();
    }
}

}  // namespace

extern "C" const char* zeropp_encode(const char* quantizer, cudaStream_t stream, const zeropp::half* tensor,
                                     std::size_t n, int nodes, int devices, std::byte* messages) {
    return enqueue(quantizer, stream, [&](const zeropp::cuda_stream& s, const auto& q) {
        codec::write(s, q, tensor, reordered(n, nodes, devices), messages);
    });
}

extern "C" const char* zeropp_decode(const char* quantizer, cudaStream_t stream, const std::byte* messages,
                                     std::size_t n, int nodes, int devices, zeropp::half* tensor) {
    return enqueue(quantizer, stream, [&](const zeropp::cuda_stream& s, const auto& q) {
        codec::read(s, zeropp::message_sum{q, messages}, reordered(n, nodes, devices), tensor);
    });
}

/// Sums `contributors` consecutive messages of n elements each.
extern "C" const char* zeropp_reduce_encode(const char* quantizer, cudaStream_t stream, const std::byte* messages,
                                            std::size_t n, int contributors, std::byte* sum) {
    return enqueue(quantizer, stream, [&](const zeropp::cuda_stream& s, const auto& q) {
        codec::write(s, q, zeropp::message_sum{q, messages, contributors}, zeropp::slices::single(n, 0, n), sum);
    });
}
