#include "shipped.cuh"

namespace {
using q = zeropp::lossless<zeropp::bfloat16>;
}  // namespace

ZEROPP_SHIPPED(q, q)
