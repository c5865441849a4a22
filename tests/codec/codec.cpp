#include <zeropp/codec/codec.hpp>

#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>

#include "support/catch.hpp"
#include "support/toy_quantizer.hpp"

#include <vector>

namespace {

using zeropp::codec_execution;
using q8 = zeropp::block_integer<8, 256>;

/// An execution that nobody wrote a codec for.
struct elsewhere {
    using space = zeropp::device_space;
    struct event {};
    void copy(void*, const void*, std::size_t) const {}
    event record() const { return {}; }
    void wait(const event&) const {}
    void wait() const {}
};

static_assert(codec_execution<zeropp::host, q8, float> && codec_execution<zeropp::host_queue, q8, zeropp::half>);
static_assert(codec_execution<zeropp::host, zeropp_test::toy_quantizer, zeropp_test::toy_element>);
static_assert(zeropp::execution<elsewhere> && !codec_execution<elsewhere, q8, float>);
static_assert(!codec_execution<zeropp::host, q8, double> && !codec_execution<zeropp::host, int, float>);

}  // namespace

TEST_CASE("a user's own quantizer and elements go through the host's codec", "[codec]") {
    using namespace zeropp_test;
    const zeropp::host exec;
    const toy_quantizer q;
    const std::vector<toy_element> tensor{{512}, {-512}, {256}, {0}, {-100}, {700}, {1}, {-300}};
    const auto where = zeropp::slices::single(8, 0, 8);
    std::vector<std::byte> message(zeropp::wire_bytes(q, 8));
    zeropp::codec<zeropp::host>::write(exec, q, tensor.data(), where, message.data());
    // The largest is below 4: sizes are 2 or nothing, from half of 2 on. Codes are size and sign, lowest bits first.
    CHECK(message[0] == std::byte{0b00'01'11'01});
    CHECK(message[1] == std::byte{0b11'00'01'10});
    CHECK(message[2] == std::byte{2});
    for (std::size_t i = 3; i != message.size(); ++i) CHECK(message[i] == std::byte{0});
    std::vector<toy_element> back(8);
    zeropp::codec<zeropp::host>::read(exec, zeropp::message_sum{q, message.data()}, where, back.data());
    CHECK(back == std::vector<toy_element>{{512}, {-512}, {512}, {0}, {0}, {512}, {0}, {-512}});
}
