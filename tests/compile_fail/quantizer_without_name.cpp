// expect: quantizer_named: no quantizer of known_quantizers has this name
#include <zeropp/quantizer/named.hpp>

zeropp::quantizer_named<"int9:256"> unknown;
