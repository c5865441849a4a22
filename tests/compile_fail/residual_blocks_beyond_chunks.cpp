// expect: error_feedback: the blocks of Storage must not be larger than those of the larger quantizer
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/quantizer/block_integer.hpp>

struct large_blocks {
    template <zeropp::quantizer Q>
    using storage = zeropp::block_integer<8, 1024>;
};

using int4 = zeropp::block_integer<4, 128>;

constexpr std::size_t size = sizeof(zeropp::error_feedback<zeropp::hops<int4, int4>, large_blocks, zeropp::host_space>);
