#include "kernels/codec_against_host.hpp"

#include <cmath>

namespace kernels = zeropp_test::kernels;
using zeropp::cast_to;

namespace {

/// Each contributor's 19 elements: contributor c of `contributors` gives element i the i-th kind of zero, or a share of
/// a sum that is one: all -0, all +0, -0 and one +0, x and -x, and the smallest floats and halves, which divisors
/// round.
std::vector<float> zeros(int contributors, int c) {
    std::vector<float> x(19, -0.0f);
    x[1] = x[8] = 0.0f;
    x[2] = c == contributors - 1 ? 0.0f : -0.0f;
    x[3] = c == 0 ? 1.5f : c == 1 ? -1.5f : -0.0f;
    x[4] = c == 0 ? -0x1p-149f : -0.0f;
    x[5] = c == 0 ? 0x1p-149f : 0.0f;
    x[6] = c == 0 ? -0x1p-24f : -0.0f;
    x[10] = c == 0 ? -0x1.8p-126f : -0.0f;
    return x;
}

template <class T>
void check_zeros(int contributors, float divisor, zeropp::epilogue last) {
    INFO(contributors << " contributors, divided by " << divisor << (last.accumulate ? ", accumulated on " : " on ")
                      << zeropp::element_traits<T>::name);
    constexpr cast_to<float> q;
    const auto where = zeropp::slices::single(19, 0, 19);
    const std::size_t bytes = wire_bytes(q, 19);
    std::vector<std::byte> messages(static_cast<std::size_t>(contributors) * bytes);
    for (int c = 0; c != contributors; ++c) {
        kernels::on_host::write(zeropp::host{}, q, zeros(contributors, c).data(), where,
                                messages.data() + static_cast<std::size_t>(c) * bytes);
    }
    // What is added to: the zeros of both signs.
    std::vector<T> expected;
    for (int i = 0; i != 19; ++i) expected.push_back(zeropp::element_traits<T>::from_float(i % 4 < 2 ? -0.0f : 0.0f));
    const kernels::owned_stream stream;
    const kernels::device_array<T> out(expected);
    const kernels::device_array<std::byte> in(messages);
    kernels::on_host::read(zeropp::host{}, zeropp::message_sum{q, messages.data(), contributors, divisor}, where,
                           expected.data(), last);
    kernels::on_device::read(stream.exec(), zeropp::message_sum{q, in.data(), contributors, divisor}, where, out.data(),
                             last);
    stream.exec().wait();
    const std::vector<T> given = out.read();
    REQUIRE(zeropp_test::difference(given, expected) == "");
    const auto negative_zero = [&](std::size_t i) {
        const float x = zeropp::element_traits<T>::to_float(given[i]);
        REQUIRE(x == 0.0f);
        return std::signbit(x);
    };
    // By the rules of IEEE 754: -0 is the sum of -0 alone, and a quotient has its dividend's sign.
    REQUIRE(negative_zero(0));
    REQUIRE(negative_zero(16));
    REQUIRE(negative_zero(18) == !last.accumulate);
    REQUIRE(!negative_zero(1));
    REQUIRE(!negative_zero(8));
    if (contributors > 1) REQUIRE(!negative_zero(3));
}

}  // namespace

TEST_CASE("kernels: zeros keep their signs through sums and divisors", "[kernels]") {
    for (const int contributors : {1, 2, 3, 4, 5, 8}) {
        for (const float divisor : {1.0f, 2.0f, 3.0f, 4.0f}) {
            for (const bool accumulate : {false, true}) {
                check_zeros<float>(contributors, divisor, {accumulate});
                check_zeros<zeropp::half>(contributors, divisor, {accumulate});
                check_zeros<zeropp::bfloat16>(contributors, divisor, {accumulate});
            }
        }
    }
}
