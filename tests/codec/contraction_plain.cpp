#include "codec/contraction_probe.hpp"

// The results as the rest of the tests compute them; contraction_fma.cpp has the other side.
std::vector<std::byte> uncontracted_results(const std::vector<float>& values) {
    return zeropp::contraction_results(values);
}
