#include <zeropp/codec/host/rotation.hpp>

#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>

#include "codec/host/abilities.hpp"
#include "support/catch.hpp"
#include "support/hadamard_reference.hpp"
#include "support/host_targets.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::asymmetric;
using zeropp::block_integer;
using zeropp::cast_to;
using zeropp::hadamard;
using zeropp::half;
using zeropp::signed_absmax;

/// Messages of rotated elements: those of the base, of values that went through the recursive transform.
template <class Base, int Window>
void check_encode_rotated(const cut& c) {
    const std::vector<float> tensor = mixed_floats(c.elements, 21);
    std::vector<std::byte> expected;
    for (int s = 0; s != c.slots; ++s) {
        append(expected,
               reference_of<Base>::format.message(rotated(carried_values(c, s, tensor), Window, false), c.count));
    }
    CAPTURE(c.what);
    const bool as_documented = encoded(hadamard<Base, Window>{}, tensor.data(), c.slices()) == expected;
    CHECK(as_documented);
}

/// Elements of three contributors' messages of anything, summed and then rotated back, once; and of the first alone.
template <class T, class Base, int Window>
void check_decode_rotated(const cut& c) {
    const hadamard<Base, Window> q;
    const reference_format& f = reference_of<Base>::format;
    const std::vector<std::uint8_t> messages = contributions(f, c, 3);
    const auto bytes = as_bytes(messages);
    for (const int contributors : {1, 3}) {
        std::vector<std::vector<float>> sums = reference_sums(f, c, messages, contributors);
        for (auto& sum : sums) sum = rotated(sum, Window, true);
        guarded<T> tensor(c.elements, 0x5a);
        const auto before = tensor.values();
        if (contributors == 1) {
            host_codec::read(zeropp::host{}, zeropp::message_sum{q, bytes.data()}, c.slices(), tensor.data());
        } else {
            host_codec::read(zeropp::host{}, zeropp::message_sum{q, bytes.data(), contributors}, c.slices(),
                             tensor.data());
        }
        require_elements<T>(c.what, c, tensor, before,
                            [&](int s, std::size_t i, std::size_t) { return sums[static_cast<std::size_t>(s)][i]; });
    }
}

/// Sums of rotated messages are rotated back, rotated for their own quantizer, and encoded; or stay as they are if both
/// windows have the same size.
template <class From, int FromWindow, class To, int ToWindow>
void check_reduce_encode_rotated(const cut& c) {
    const reference_format& f = reference_of<From>::format;
    const std::vector<std::uint8_t> messages = contributions(f, c, 3);
    std::vector<std::byte> expected;
    for (const auto& sum : reference_sums(f, c, messages, 3)) {
        const auto elements = rotated(sum, FromWindow, true);
        append(expected, reference_of<To>::format.message(
                             FromWindow == ToWindow ? sum : rotated(elements, ToWindow, false), c.count));
    }
    guarded<std::byte> sums(expected.size(), 0x5a);
    host_codec::write(zeropp::host{}, hadamard<To, ToWindow>{},
                      zeropp::message_sum{hadamard<From, FromWindow>{}, as_bytes(messages).data(), 3}, c.slices(),
                      sums.data());
    CAPTURE(c.what);
    const bool as_documented = sums.values() == expected && sums.intact();
    CHECK(as_documented);
}

/// The lossless base shows the coefficients themselves: against the matrix in double, and there and back.
template <int Window>
void check_against_matrix() {
    const hadamard<cast_to<float>, Window> q;
    for (const std::size_t n : {std::size_t{Window}, std::size_t{5 * Window + 3}, std::size_t{Window - 1},
                                std::size_t{256}, std::size_t{1027}}) {
        CAPTURE(Window, n);
        const std::vector<float> tensor = normal_floats(n, n);
        const auto where = zeropp::slices::single(n, 0, n);
        const auto message = encoded(q, tensor.data(), where);
        const auto coefficients = reference_of<cast_to<float>>::format.elements(as_uint8(message), n, n);
        const std::vector<double> expected = rotated(std::vector<double>(tensor.begin(), tensor.end()), Window, false);
        std::vector<float> back(n);
        host_codec::read(zeropp::host{}, zeropp::message_sum{q, message.data()}, where, back.data());
        double furthest = 0;
        double furthest_back = 0;
        for (std::size_t i = 0; i != n; ++i) {
            furthest = std::max(furthest, std::fabs(static_cast<double>(coefficients[i]) - expected[i]));
            furthest_back =
                std::max(furthest_back, std::fabs(static_cast<double>(back[i]) - static_cast<double>(tensor[i])));
        }
        // Eight roundings at most of numbers that the matrix bounds by 6 times their standard deviation.
        CHECK(furthest < 8.0 * 8.0 * 0x1p-23);
        CHECK(furthest_back < 8.0 * 8.0 * 0x1p-23);
    }
}

}  // namespace

TEST_CASE("rotations are those of the Hadamard matrix, and come back", "[codec][host][rotation]") {
    on_every_target([] {
        check_against_matrix<8>();
        check_against_matrix<32>();
        check_against_matrix<64>();
    });
}

TEST_CASE("messages of rotated elements, byte by byte", "[codec][host][rotation]") {
    using q4 = block_integer<4, 128>;
    using q8 = block_integer<8, 512, asymmetric, half>;
    on_every_target([] {
        for (const cut& c : telling_cuts(128)) {
            check_encode_rotated<q4, 32>(c);
            check_decode_rotated<float, q4, 32>(c);
        }
        for (const cut& c : telling_cuts(512)) {
            check_encode_rotated<q8, 256>(c);
            check_decode_rotated<half, q8, 256>(c);
        }
    });
}

TEST_CASE("sums of rotated messages are rotated back once, and for the next hop once more; or stay where they are",
          "[codec][host][rotation]") {
    using q8 = block_integer<8, 64>;
    using q4 = block_integer<4, 128, signed_absmax, half>;
    for (const cut& c : telling_cuts(128)) {
        check_reduce_encode_rotated<q8, 8, q4, 128>(c);
        check_reduce_encode_rotated<q8, 32, cast_to<float>, 32>(c);  // shows every bit of the sums
    }
}

TEST_CASE("a window that holds NaN, Inf or too much is NaN, and no other block is", "[codec][host][rotation]") {
    const hadamard<block_integer<4, 128>> q;
    const auto where = zeropp::slices::single(640, 0, 640);
    for (const std::uint32_t bits : {0x7f800000u, 0x7fc00000u, 0x7f7fffffu}) {
        std::vector<float> tensor = normal_floats(640, 9);
        tensor[300] = float_of(bits);
        tensor[301] = float_of(bits);
        std::vector<float> back(640);
        host_codec::read(zeropp::host{}, zeropp::message_sum{q, encoded(q, tensor.data(), where).data()}, where,
                         back.data());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i != 640; ++i)
            if (is_nan(back[i]) != (i / 128 == 2)) ++wrong;
        CHECK(wrong == 0);
    }
    const std::vector<float> zeros(640, -0.0f);
    std::vector<float> back(640, 1.0f);
    host_codec::read(zeropp::host{}, zeropp::message_sum{q, encoded(q, zeros.data(), where).data()}, where,
                     back.data());
    CHECK(std::all_of(back.begin(), back.end(), [](float x) { return x == 0.0f; }));
}
