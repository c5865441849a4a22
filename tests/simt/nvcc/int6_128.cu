#include "shipped.cuh"

using namespace zeropp;
using q = block_integer<6, 128>;

template struct shipped::encoded<q, bfloat16>;
template struct shipped::decoded<q, bfloat16>;
template struct shipped::summed<q, q>;
