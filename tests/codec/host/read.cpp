#include <zeropp/codec/host.hpp>

#include <zeropp/codec/host/read.hpp>
#include <zeropp/codec/host/sources.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>

#include "conformance/codec_laws.hpp"
#include "support/catch.hpp"

namespace {

using namespace zeropp_test;
using zeropp::asymmetric;
using zeropp::bfloat16;
using zeropp::block_integer;
using zeropp::cast_to;
using zeropp::half;
using zeropp::host;
using zeropp::host_queue;
using zeropp::signed_absmax;
using zeropp::symmetric;

}  // namespace

TEST_CASE("the host's codec writes and reads the documented bytes, other elements", "[codec][host]") {
    const host exec;
    check_codec<half>(exec, block_integer<8, 256>{});
    check_codec<half>(exec, cast_to<half>{});
    check_codec<bfloat16>(exec, block_integer<5, 16, asymmetric, bfloat16>{});
    check_codec<bfloat16>(exec, cast_to<bfloat16>{});
    check_codec<bfloat16>(exec, cast_to<half>{});
    check_codec<toy_element>(exec, block_integer<4, 128>{});
}

TEST_CASE("the codec of a queue writes and reads the documented bytes", "[codec][host]") {
    const host_queue exec;
    check_codec<float>(exec, block_integer<7, 64, signed_absmax>{});
    check_codec<half>(exec, block_integer<2, 8, asymmetric, half>{});
    check_between(exec, block_integer<8, 64>{}, block_integer<4, 32, symmetric, half>{});
}

TEST_CASE("sums become messages of any other quantizer", "[codec][host]") {
    const host exec;
    check_between(exec, block_integer<8, 256>{}, block_integer<4, 128>{});
    check_between(exec, block_integer<4, 128, symmetric, half>{}, block_integer<8, 256, asymmetric>{});
    check_between(exec, block_integer<4, 32, asymmetric, half>{}, block_integer<4, 32, signed_absmax, half>{});
    check_between(exec, cast_to<float>{}, block_integer<6, 512>{});
    check_between(exec, block_integer<8, 64>{}, cast_to<bfloat16>{});
}
