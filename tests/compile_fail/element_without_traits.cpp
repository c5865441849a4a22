// expect: element<T>. .with T = unknown_number|.unknown_number. does not satisfy .element
#include <zeropp/quantizer/cast_to.hpp>

struct unknown_number {
    float x;
};
constexpr int bits = zeropp::cast_to<unknown_number>::code_bits;
