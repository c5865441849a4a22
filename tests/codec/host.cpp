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

TEST_CASE("the host's codec writes and reads the documented bytes, floats", "[codec][host]") {
    const host exec;
    check_codec<float>(exec, block_integer<8, 256>{});
    check_codec<float>(exec, block_integer<4, 128, symmetric, half>{});
    check_codec<float>(exec, block_integer<4, 128, signed_absmax, half>{});
    check_codec<float>(exec, block_integer<4, 32, asymmetric, half>{});
    check_codec<float>(exec, block_integer<6, 512, asymmetric>{});
    check_codec<float>(exec, block_integer<3, 8, symmetric, bfloat16>{});
    check_codec<float>(exec, cast_to<float>{});
}

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

TEST_CASE("a tensor without elements may have no address", "[codec][host]") {
    const host exec;
    const block_integer<4, 128> q;
    // A rank whose shard is empty, in a later chunk of the others' slices.
    const auto none = zeropp::slices::single(0, 128, 100);
    guarded<std::byte> message(zeropp::wire_bytes(q, 100), 0x77);
    zeropp::codec<host>::write(exec, q, static_cast<const float*>(nullptr), none, message.data());
    require_bytes("nothing", message, std::vector<std::uint8_t>(message.size()));
    zeropp::codec<host>::read(exec, zeropp::message_sum{q, message.data()}, none, static_cast<float*>(nullptr));
    zeropp::codec<host>::read(exec, zeropp::message_sum{q, message.data(), 1}, none, static_cast<float*>(nullptr));
}

TEST_CASE("blocks of the largest size go through", "[codec][host]") {
    const block_integer<3, 65536, symmetric, half> q;
    const cut c = whole(65536 + 4321);
    check_encode<float>(host{}, q, c);
    check_decode<float>(host{}, q, c);
}
