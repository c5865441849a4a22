#include "shipped.cuh"

using namespace zeropp;
using q = block_integer<8, 256>;
// The format of C, PyTorch and zero3_gpt, here with all elements.
using narrow = block_integer<8, 256, symmetric, bfloat16>;

template struct shipped::encoded<q, bfloat16>;
template struct shipped::decoded<q, bfloat16>;
template struct shipped::summed<q, q>;
template struct shipped::encoded<narrow, float, half, bfloat16>;
template struct shipped::decoded<narrow, float, half, bfloat16>;
template struct shipped::summed<narrow, narrow, block_integer<4, 128, signed_absmax, bfloat16>>;
