#include <zeropp/quantizer/residual_storage.hpp>

#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/hadamard.hpp>

#include "support/catch.hpp"
#include "support/toy_quantizer.hpp"

#include <cstddef>
#include <type_traits>

namespace {

using namespace zeropp;
using q4 = hadamard<block_integer<4, 128, signed_absmax, half>>;

static_assert(std::is_same_v<residuals_in_fp32::storage<q4>, cast_to<float>>);
static_assert(std::is_same_v<residuals_in_bf16::storage<q4>, cast_to<bfloat16>>);
static_assert(std::is_same_v<residuals_in_int8::storage<q4>, block_integer<8, 128>>);
static_assert(std::is_same_v<residuals_in_int8::storage<zeropp_test::toy_quantizer>, block_integer<8, 16>>);

}  // namespace

TEST_CASE("residuals take the memory that the page states", "[quantizer][residual_storage]") {
    constexpr std::size_t n = 128 * 100;
    CHECK(wire_bytes(residuals_in_fp32::storage<q4>{}, n) == 4 * n);
    CHECK(wire_bytes(residuals_in_bf16::storage<q4>{}, n) == 2 * n);
    CHECK(wire_bytes(residuals_in_int8::storage<q4>{}, n) == n + 4 * 100);
}
