#include "shipped.cuh"

namespace {
using zeropp::block_integer;
using q = block_integer<8, 2048>;
}  // namespace

ZEROPP_SHIPPED(q, q, block_integer<4, 2048>)
