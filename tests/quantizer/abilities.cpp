#include <zeropp/quantizer/quantizer.hpp>

#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>
#include <zeropp/quantizer/named.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/quantizer/stochastic.hpp>

#include "support/catch.hpp"
#include "support/toy_quantizer.hpp"

#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <variant>

namespace {

using namespace zeropp;
using namespace zeropp_test;

using plain = block_integer<4, 128>;
using rotated = hadamard<block_integer<4, 128, signed_absmax, half>, 128>;
using dithered = stochastic<hadamard<plain>>;

/// A quantizer's abilities, a letter each: rotates, fits twice, dithers, has five codes in a byte.
template <quantizer Q>
std::string abilities_of() {
    std::string letters;
    if (rotating_quantizer<Q>) letters += 'r';
    if (refitting_quantizer<Q>) letters += 't';
    if (stochastic_quantizer<Q>) letters += 'd';
    if (ternary_quantizer<Q>) letters += '5';
    return letters;
}

/// `hadamard_size` that the concept must refuse.
template <int Size>
struct wrong_window : block_integer<4, 128> {
    static constexpr int hadamard_size = Size;
};
static_assert(rotating_quantizer<wrong_window<8>> && rotating_quantizer<wrong_window<128>>);
static_assert(!rotating_quantizer<wrong_window<4>> && !rotating_quantizer<wrong_window<256>> &&
              !rotating_quantizer<wrong_window<24>> && !rotating_quantizer<wrong_window<0>>);

static_assert(std::is_same_v<residuals_in_fp32::storage<rotated>, cast_to<float>>);
static_assert(std::is_same_v<residuals_in_bf16::storage<rotated>, cast_to<bfloat16>>);
static_assert(std::is_same_v<residuals_in_int8::storage<rotated>, block_integer<8, 128>>);
static_assert(std::is_same_v<residuals_in_int8::storage<toy_quantizer>, block_integer<8, 16>>);

}  // namespace

TEST_CASE("quantizers have the abilities that they were given", "[quantizer][abilities]") {
    CHECK(abilities_of<plain>().empty());
    CHECK(abilities_of<cast_to<half>>().empty());
    CHECK(abilities_of<toy_quantizer>().empty());
    CHECK(abilities_of<hadamard<plain>>() == "r");
    CHECK(abilities_of<hadamard<plain, 128>>() == "r");
    CHECK(abilities_of<stochastic<plain>>() == "d");
    CHECK(abilities_of<dithered>() == "rd");
    CHECK(abilities_of<hadamard<stochastic<plain>>>() == "rd");
    CHECK(abilities_of<hadamard<lloyd_max<2, 128>, 128>>() == "rt");
    CHECK(abilities_of<lloyd_max<3, 32, unbiased>>() == "t5");
    CHECK(bounded_quantizer<rotated>);
    CHECK(bounded_quantizer<dithered>);
    CHECK_FALSE(bounded_quantizer<hadamard<toy_quantizer, 8>>);
    // Bounded, but without an extent.
    CHECK_FALSE(bounded_quantizer<hadamard<cast_to<float>>>);
}

TEST_CASE("abilities show in names, and names choose them", "[quantizer][abilities][named]") {
    using own = named_quantizers<plain, hadamard<plain>, rotated, dithered>;
    CHECK(own::list() == "int4:128, int4:128:h32, int4:128:signed:fp16:h128, int4:128:h32:stochastic");
    for (const std::string name :
         {"int4:128", "int4:128:h32", "int4:128:signed:fp16:h128", "int4:128:h32:stochastic"}) {
        CHECK(own::name(own::parse(name)) == name);
    }
    CHECK(std::holds_alternative<rotated>(own::parse("int4:128:signed:fp16:h128")));
    CHECK(own::parse("int4:128:symmetric:h32").index() == 1);
    CHECK_THROWS_AS(own::parse("int4:128:h64"), precondition_error);
    CHECK_THROWS_AS(own::parse("int4:128:stochastic"), precondition_error);
}

TEST_CASE("abilities cost no bytes", "[quantizer][abilities][wire_layout]") {
    for (const std::size_t n : {0u, 1u, 127u, 128u, 129u, 1000u}) {
        CHECK(wire_bytes(rotated{}, n) == wire_bytes(block_integer<4, 128, signed_absmax, half>{}, n));
        CHECK(wire_bytes(dithered{}, n) == wire_bytes(plain{}, n));
        CHECK(wire_layout<plain>(n).params_end == wire_layout<plain>(n).params_offset + (n + 127) / 128 * 4);
    }
}

TEST_CASE("rotations there and back multiply by powers of two that cancel", "[quantizer][abilities]") {
    const auto check = [](int size, float there, float back) {
        CAPTURE(size);
        CHECK(there * back * static_cast<float>(size) == 1.0f);
        int exponent = 0;
        CHECK(std::frexp(there, &exponent) == 0.5f);
        // 1 / sqrt(size), or sqrt(2) times that.
        const double square = static_cast<double>(there) * static_cast<double>(there) * size;
        const bool power_of_four = (static_cast<int>(std::log2(size)) % 2) == 0;
        CHECK(square == (power_of_four ? 1.0 : 2.0));
    };
    check(8, detail::rotation_scale<8>(false), detail::rotation_scale<8>(true));
    check(16, detail::rotation_scale<16>(false), detail::rotation_scale<16>(true));
    check(32, detail::rotation_scale<32>(false), detail::rotation_scale<32>(true));
    check(64, detail::rotation_scale<64>(false), detail::rotation_scale<64>(true));
    check(128, detail::rotation_scale<128>(false), detail::rotation_scale<128>(true));
    check(256, detail::rotation_scale<256>(false), detail::rotation_scale<256>(true));
    CHECK(detail::rotation_size<plain>() == 1);
    CHECK(detail::rotation_size<rotated>() == 128);
}

TEST_CASE("residuals take the memory that the page states", "[quantizer][residual_storage]") {
    constexpr std::size_t n = 128 * 100;
    CHECK(wire_bytes(residuals_in_fp32::storage<rotated>{}, n) == 4 * n);
    CHECK(wire_bytes(residuals_in_bf16::storage<rotated>{}, n) == 2 * n);
    CHECK(wire_bytes(residuals_in_int8::storage<rotated>{}, n) == n + 4 * 100);
}
