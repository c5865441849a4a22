// What large blocks differ in: a block shared by a whole warp. Their decoding is that of small ones.
#include "shipped.cuh"

using namespace zeropp;

template struct shipped::encoded<block_integer<8, 2048>, float, bfloat16>;
template struct shipped::encoded<block_integer<4, 2048>, float, bfloat16>;
template struct shipped::summed<block_integer<8, 2048>, block_integer<4, 2048>>;
