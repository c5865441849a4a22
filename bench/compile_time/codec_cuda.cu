#include <zeropp/codec/cuda.cuh>
#include <zeropp/quantizer/block_integer.hpp>

using codec = zeropp::codec<zeropp::cuda_stream>;

void round_trip(const zeropp::cuda_stream& stream, const float* tensor, std::size_t n, std::byte* message,
                float* back) {
    const zeropp::block_integer<8, 256> int8;
    const zeropp::slices whole = zeropp::slices::single(n, 0, n);
    codec::write(stream, int8, tensor, whole, message);
    codec::read(stream, zeropp::message_sum{int8, message}, whole, back);
}
