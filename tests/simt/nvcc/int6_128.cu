#include "shipped.cuh"

namespace {
using zeropp::block_integer;
using q = block_integer<6, 128>;
}  // namespace

ZEROPP_SHIPPED(q, q, block_integer<4, 128>)
