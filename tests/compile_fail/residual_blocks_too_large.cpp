// expect: feedback: the blocks of Storage must not be larger than 1024 elements or the quantizer's
#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>

#include <cstddef>

void encode(const float* tensor, std::byte* message, zeropp::feedback<zeropp::block_integer<8, 2048>> residuals) {
    zeropp::codec<zeropp::host>::write(zeropp::host{}, zeropp::block_integer<4, 128>{}, tensor,
                                       zeropp::slices::single(1, 0, 1), message, residuals);
}
