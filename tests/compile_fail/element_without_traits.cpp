// expect: element<T>. .with T = unknown_number|.unknown_number. does not satisfy .element
#include <zeropp/quantizer/lossless.hpp>

struct unknown_number {
    float x;
};
constexpr int bits = zeropp::lossless<unknown_number>::code_bits;
