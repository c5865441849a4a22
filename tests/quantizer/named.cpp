#include <zeropp/quantizer/named.hpp>

#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/hops.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>

#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/toy_quantizer.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace {

using zeropp::standard_quantizers;

/// The index of the quantizer that a name stands for.
std::size_t index_of(const std::string& name) { return standard_quantizers::parse(name).index(); }

const std::vector<std::string> names{"fp32",
                                     "fp16",
                                     "bf16",
                                     "int8:256",
                                     "int8:256:fp16",
                                     "int8:256:bf16",
                                     "int8:2048",
                                     "int6:128",
                                     "int6:128:fp16",
                                     "int4:128",
                                     "int4:128:fp16",
                                     "int4:128:signed:fp16",
                                     "int4:128:signed:bf16",
                                     "int4:128:asymmetric:fp16",
                                     "int4:2048",
                                     "int8:256:fp16:h32",
                                     "int4:128:fp16:h32",
                                     "int4:128:signed:fp16:h128",
                                     "int4:128:fp16:stochastic",
                                     "fp8_e4m3:128",
                                     "fp8_e5m2:128",
                                     "mxfp8_e4m3",
                                     "mxfp8_e5m2",
                                     "mxfp6_e2m3",
                                     "mxfp6_e3m2",
                                     "mxfp4"};

}  // namespace

TEST_CASE("a name is a type, and every quantizer with a name has its own", "[quantizer][named]") {
    using zeropp::quantizer_named;
    STATIC_REQUIRE(std::same_as<quantizer_named<"fp32">, zeropp::cast_to<float>>);
    STATIC_REQUIRE(std::same_as<quantizer_named<"mxfp4">, zeropp::mxfp4>);
    STATIC_REQUIRE(
        std::same_as<quantizer_named<"int8:64:fp16">, zeropp::block_integer<8, 64, zeropp::symmetric, zeropp::half>>);
    STATIC_REQUIRE(std::same_as<quantizer_named<"lloyd2:128:unbiased:h128">,
                                zeropp::hadamard<zeropp::lloyd_max<2, 128, zeropp::unbiased>, 128>>);
    std::size_t commas = 0;
    const std::string list = zeropp::known_quantizers::list();
    for (const char c : list) commas += c == ',';
    CHECK(commas + 1 == std::variant_size_v<zeropp::known_quantizers::variant>);
    for (std::size_t begin = 0, i = 0; begin <= list.size(); ++i) {
        const std::size_t end = std::min(list.find(", ", begin), list.size());
        const std::string name = list.substr(begin, end - begin);
        CAPTURE(name);
        CHECK(zeropp::known_quantizers::parse(name).index() == i);  // no other one before it has this name
        begin = end + 2;
    }
}

TEST_CASE("every standard name stands for its quantizer", "[quantizer][named]") {
    for (std::size_t i = 0; i != names.size(); ++i) {
        CAPTURE(names[i]);
        CHECK(index_of(names[i]) == i);
        CHECK(standard_quantizers::name(standard_quantizers::parse(names[i])) == names[i]);
    }
    CHECK(std::variant_size_v<standard_quantizers::variant> == names.size());
    const auto q = standard_quantizers::parse("int4:128:signed:fp16");
    CHECK(std::holds_alternative<zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>>(q));
}

TEST_CASE("defaults may be spelt out", "[quantizer][named]") {
    CHECK(index_of("int8:256:symmetric:fp32") == index_of("int8:256"));
    CHECK(index_of("int8:256:symmetric") == index_of("int8:256"));
    CHECK(index_of("int8:256:fp32") == index_of("int8:256"));
    CHECK(index_of("int4:128:symmetric:fp16") == index_of("int4:128:fp16"));
    CHECK(index_of("fp8_e4m3:128:fp32") == index_of("fp8_e4m3:128"));
    CHECK(standard_quantizers::name(standard_quantizers::parse("int4:128:symmetric:fp16")) == "int4:128:fp16");
    CHECK_THROWS_AS(zeropp::known_quantizers::parse("lloyd2:128:fp32"), zeropp::precondition_error);  // has a byte
}

TEST_CASE("a wrong name is answered with the right ones", "[quantizer][named]") {
    std::string list;
    for (const auto& name : names) list += (list.empty() ? "" : ", ") + name;
    CHECK(standard_quantizers::list() == list);
    for (const std::string wrong : {"",
                                    "int8",
                                    "int8:",
                                    "int8:512",
                                    "INT8:256",
                                    "int8:256 ",
                                    " int8:256",
                                    "int8:256:fp16:symmetric",
                                    ":symmetric",
                                    "int8:256:",
                                    "int8:256:signed",
                                    "int8:256:fp32:fp32",
                                    "int8:256:symmetric:symmetric",
                                    "int8:256:fp32:symmetric",
                                    "int8:256:fp16:fp32",
                                    "int8:256:fp32:fp16",
                                    "int4:128:fp32:signed:fp16",
                                    "int4:128:fp16:h32:fp32",
                                    "fp64",
                                    "fp32:fp32",
                                    "fp16:fp32",
                                    "bf16:symmetric",
                                    "bf16:symmetric:fp32",
                                    ":fp32",
                                    "int4:128:asymmetric",
                                    "fp8:128",
                                    "fp8_e4m3",
                                    "fp8_e4m3:128:symmetric",
                                    "mxfp8",
                                    "mxfp4:32",
                                    "mxfp4_e2m1",
                                    "mxfp4:fp32"}) {
        CHECK(zeropp_test::thrown<zeropp::precondition_error>([&] { standard_quantizers::parse(wrong); }) ==
              "quantizer: expected one of " + list + ", given \"" + wrong + "\"");
    }
}

TEST_CASE("a program's own set of names", "[quantizer][named]") {
    using own = zeropp::named_quantizers<zeropp_test::toy_quantizer, zeropp::cast_to<float>>;
    CHECK(own::list() == "toy, fp32");
    CHECK(own::parse("toy").index() == 0);
    CHECK(own::name(own::parse("fp32")) == "fp32");
    CHECK_THROWS_AS(own::parse("int8:256"), zeropp::precondition_error);
}

TEST_CASE("quantizers of hops by the names of all", "[quantizer][named]") {
    using int8 = zeropp::block_integer<8, 256>;
    using int4 = zeropp::block_integer<4, 128, zeropp::symmetric, zeropp::half>;
    using several =
        zeropp::named_hops<zeropp::hops<int8, int8>, zeropp::hops<int8, int4>, zeropp::hops<int8, int8, int4>>;
    CHECK(several::list() == "int8:256 + int8:256, int8:256 + int4:128:fp16, int8:256 + int8:256 + int4:128:fp16");
    CHECK(several::parse("int8:256", "int4:128:fp16").index() == 1);
    CHECK(several::parse("int8:256:symmetric", "int8:256:fp32").index() == 0);
    CHECK(several::parse("int8:256", "int8:256:fp32", "int4:128:fp16").index() == 2);
    CHECK_THROWS_WITH(several::parse("int4:128:fp16", "int8"),
                      "gradient quantizers: expected one of " + several::list() + ", given \"int4:128:fp16 + int8\"");
}

TEST_CASE("hops have a quantizer for each level, their names, and the largest of their blocks", "[quantizer][hops]") {
    const zeropp::block_integer<8, 256> int8;
    const zeropp::block_integer<4, 512> int4;
    const zeropp::hops two{int8, int4};
    const zeropp::hops three{int4, int8, zeropp::block_integer<6, 1024>()};
    STATIC_REQUIRE((decltype(two)::count == 2 && decltype(three)::count == 3));
    STATIC_REQUIRE_FALSE(
        std::convertible_to<zeropp::block_integer<8, 256>, zeropp::hops<zeropp::block_integer<8, 256>>>);
    STATIC_REQUIRE(std::same_as<decltype(three)::at_level<1>, zeropp::block_integer<8, 256>>);
    CHECK(three.at(zeropp::level<1>).name() == "int8:256");
    CHECK(&three.last() == &three.at(zeropp::level<2>));
    CHECK(two.name() == "int8:256 + int4:512");
    CHECK(three.name() == "int4:512 + int8:256 + int6:1024");
    STATIC_REQUIRE((decltype(two)::largest_block == 512 && decltype(three)::largest_block == 1024));
}
