#include "shipped.cuh"

using namespace zeropp;
using q = block_integer<4, 128>;

template struct shipped::encoded<q, float, half, bfloat16>;
template struct shipped::decoded<q, float, half, bfloat16>;
template struct shipped::summed<q, q, block_integer<8, 256>>;
// Scales of 16 bits, with which products are exact.
using narrow = block_integer<4, 128, symmetric, bfloat16>;
template struct shipped::summed<narrow, narrow>;
