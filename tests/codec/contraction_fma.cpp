// Everything the probe includes but the library itself, before the options change.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ranges>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/samples.hpp"

// The library once more, under another name, where the compiler may contract products into fused multiply-adds and has
// every opportunity: the instructions, the optimiser, and the permission.
#define zeropp zeropp_contracted
#if defined(__clang__)
#if defined(__x86_64__)
// Functions of the standard library whose templates stand above get their instances here and keep their own
// instructions.
#pragma clang diagnostic ignored "-Wignored-attributes"
#pragma clang attribute push(__attribute__((target("fma,avx2"))), apply_to = function)
#endif
#pragma clang fp contract(fast)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O3", "fp-contract=fast")
#if defined(__x86_64__)
#pragma GCC target("fma,avx2")
#endif
#endif
#include "codec/contraction_probe.hpp"

namespace {

std::vector<std::byte> contracted_results(const std::vector<float>& values) {
    return zeropp::contraction_results(values);
}

/// a * b + c. Loads come first, as a sanitizer's check of one between the operations would keep them apart.
void multiply_and_add(const float* a, const float* b, const float* c, float* result, std::size_t n) {
    for (std::size_t i = 0; i != n; ++i) {
        const float x = a[i];
        const float y = b[i];
        const float z = c[i];
        const float sum = x * y + z;
        result[i] = sum;
    }
}

}  // namespace

#if defined(__clang__)
#if defined(__x86_64__)
#pragma clang attribute pop
#endif
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif

std::vector<std::byte> uncontracted_results(const std::vector<float>& values);

namespace {

bool processor_has_fma() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
#else
    return true;
#endif
}

}  // namespace

TEST_CASE("results do not depend on whether the compiler may contract", "[codec][contraction]") {
    if (!processor_has_fma()) {
        WARN("not checked: this processor has no fused multiply-add");
        return;
    }
    const std::vector<float> values = zeropp_test::normal_floats(3 * 50'001, 81);
    const auto plain = uncontracted_results(values);
    const auto contracted = contracted_results(values);
    REQUIRE(plain.size() == contracted.size());
    const auto differs = std::mismatch(plain.begin(), plain.end(), contracted.begin());
    CHECK(differs.first - plain.begin() == static_cast<std::ptrdiff_t>(plain.size()));

    // This file would notice: an addition of a product that nothing protects is contracted here.
    const std::size_t n = 50'001;
    std::vector<float> fused(n);
    multiply_and_add(values.data(), values.data() + n, values.data() + 2 * n, fused.data(), n);
    std::size_t contractions = 0;
    for (std::size_t i = 0; i != n; ++i) {
        const volatile float rounded = values[i] * values[n + i];
        if (rounded + values[2 * n + i] != fused[i]) ++contractions;
    }
    CHECK(contractions > 0);
}
