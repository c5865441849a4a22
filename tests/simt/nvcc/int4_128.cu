#include "shipped.cuh"

using namespace zeropp;
using q = block_integer<4, 128>;
// The format of C, PyTorch and zero3_gpt. With scales of 16 bits, products are exact.
using narrow = block_integer<4, 128, signed_absmax, bfloat16>;

template struct shipped::encoded<q, bfloat16>;
template struct shipped::decoded<q, bfloat16>;
template struct shipped::summed<q, q>;
template struct shipped::encoded<narrow, float, bfloat16>;
template struct shipped::decoded<narrow, float, bfloat16>;
template struct shipped::summed<narrow, narrow>;
