#include <zeropp/cuda.cuh>  // what users include, host codec and all

#include "shipped.cuh"

using namespace zeropp;
using q = cast_to<bfloat16>;

template struct shipped::encoded<q, float, bfloat16>;
template struct shipped::decoded<q, float, bfloat16>;
template struct shipped::summed<q, q>;
