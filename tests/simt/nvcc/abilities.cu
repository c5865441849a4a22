// What abilities add to kernels, each once, and together as they are used.
#include "shipped.cuh"

#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>
#include <zeropp/quantizer/stochastic.hpp>

using namespace zeropp;
using four_bits = block_integer<4, 128, signed_absmax, bfloat16>;
using eight_bits = block_integer<8, 128>;
using signs = lloyd_max<2, 128, unbiased>;
using rotated = hadamard<four_bits>;

template struct shipped::encoded<rotated, float, bfloat16>;
template struct shipped::encoded<hadamard<block_integer<4, 2048>, 256>, bfloat16>;
template struct shipped::encoded<hadamard<signs, 128>, float>;
template struct shipped::encoded<hadamard<lloyd_max<3, 128>, 128>, bfloat16>;
template struct shipped::encoded<stochastic<four_bits>, bfloat16>;
template struct shipped::subtracted<rotated, float, bfloat16>;
template struct shipped::fed_back<four_bits, eight_bits, bfloat16>;
template struct shipped::fed_back<rotated, eight_bits, bfloat16>;
template struct shipped::fed_back<rotated, cast_to<float>, float>;
template struct shipped::decoded<rotated, bfloat16>;
template struct shipped::decoded<hadamard<signs, 128>, bfloat16>;
template struct shipped::decoded<lloyd_max<3, 128>, bfloat16>;
template struct shipped::summed<hadamard<eight_bits>, hadamard<lloyd_max<4, 128>, 128>>;
// Sums that are rotated on one side alone.
template struct shipped::summed<rotated, four_bits>;
template struct shipped::summed<four_bits, rotated>;
