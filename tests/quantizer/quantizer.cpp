#include <zeropp/quantizer/quantizer.hpp>

#include "conformance/quantizer_laws.hpp"
#include "support/catch.hpp"
#include "support/toy_quantizer.hpp"

namespace {

using namespace zeropp_test;
using zeropp::quantizer;

// Each lacks one thing that a quantizer must have.
struct without_fit : toy_quantizer {
    params fit(const stats&) const noexcept = delete;
};
struct throwing_encode : toy_quantizer {
    std::uint32_t encode(float, const params&) const { return 0; }
};
struct decodes_to_double : toy_quantizer {
    double decode(std::uint32_t, const params&) const noexcept { return 0; }
};
struct nine_bits : toy_quantizer {
    static constexpr int code_bits = 9;
};
struct no_bits : toy_quantizer {
    static constexpr int code_bits = 0;
};
struct block_of_12 : toy_quantizer {
    static constexpr int block_size = 12;
};
struct block_of_4 : toy_quantizer {
    static constexpr int block_size = 4;
};
struct block_too_large : toy_quantizer {
    static constexpr int block_size = 131072;
};
struct nameless : toy_quantizer {
    static void name();
};
// Codecs declare parameters before they fit or load them.
struct params_without_default : toy_quantizer {
    struct params : toy_quantizer::params {
        explicit params(std::int8_t e) : toy_quantizer::params{e} {}
    };
    params fit(const stats& s) const noexcept { return params(toy_quantizer::fit(s).exponent); }
};
struct with_virtual : toy_quantizer {
    virtual ~with_virtual() = default;
};
struct bounded : toy_quantizer {
    float error_bound(float, const params&) const noexcept { return 1.0f; }
};
struct sixteen_bits : toy_quantizer {
    static constexpr int code_bits = 16;
};

static_assert(quantizer<toy_quantizer> && quantizer<bounded> && quantizer<sixteen_bits>);
static_assert(!quantizer<without_fit> && !quantizer<throwing_encode> && !quantizer<decodes_to_double>);
static_assert(!quantizer<nine_bits> && !quantizer<no_bits>);
static_assert(!quantizer<block_of_12> && !quantizer<block_of_4> && !quantizer<block_too_large>);
static_assert(!quantizer<params_without_default>);
static_assert(!quantizer<nameless> && !quantizer<with_virtual> && !quantizer<int>);
static_assert(zeropp::bounded_quantizer<bounded> && !zeropp::bounded_quantizer<toy_quantizer>);

}  // namespace

TEST_CASE("a user's own quantizer keeps the laws", "[quantizer]") {
    const auto q = describe<toy_quantizer>();
    CHECK(q.name == "toy");
    check_quantizer_laws(q);
}
