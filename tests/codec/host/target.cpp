#include <zeropp/codec/host/target.hpp>

#include <zeropp/codec/host.hpp>
#include <zeropp/codec/host/avx512.hpp>
#include <zeropp/codec/host/sixteen_bits.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>
#include <zeropp/quantizer/stochastic.hpp>

#include "support/catch.hpp"
#include "support/host_targets.hpp"
#include "support/samples.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace {

using namespace zeropp_test;
using codec = zeropp::codec<zeropp::host>;
using zeropp::bfloat16;
using zeropp::half;

constexpr zeropp::host exec;

/// A user's quantizer, whose highest code is not the largest that its bits hold.
struct up_to_100 : zeropp::block_integer<8, 64> {
    static constexpr std::int32_t highest_code = 100;
    static constexpr bool reaches_above = true;

    constexpr params fit(const stats& s) const noexcept {
        if (s.absmax >= zeropp::infinity_bits) return {zeropp::quiet_nan};
        return {zeropp::stored_step<float>(zeropp::bits_float(s.absmax), 101.0f)};
    }
    constexpr std::uint32_t encode(float x, const params& p) const noexcept {
        return static_cast<std::uint32_t>(zeropp::nearest_code(x, p.scale, -101, highest_code)) & 0xffu;
    }
    static constexpr zeropp::short_text name() { return "int8:64:up_to_100"; }
};

}  // namespace

template <>
inline constexpr bool zeropp::has_integer_arithmetic<up_to_100> = true;

namespace {

/// What comes of `contributors` messages: of their sum a message, what that decodes to, and means by two divisors, one
/// of which has an exact reciprocal, alone and added to elements of each type.
template <class Q>
struct outcome {
    std::vector<std::byte> sum;
    std::vector<half> elements;
    std::vector<float> means;
    std::vector<bfloat16> added;

    outcome(const Q& q, const std::vector<std::byte>& messages, int contributors, std::size_t n)
        : sum(zeropp::wire_bytes(q, n)), elements(n), means(4 * n), added(n) {
        const zeropp::slices where = zeropp::slices::single(n, 0, n);
        codec::write(exec, q, zeropp::message_sum{q, messages.data(), contributors}, where, sum.data());
        codec::read(exec, zeropp::message_sum{q, sum.data()}, where, elements.data());
        codec::read(exec, zeropp::message_sum{q, messages.data(), contributors, 3.0f}, where, means.data());
        codec::read(exec, zeropp::message_sum{q, messages.data(), contributors, 4.0f}, where, means.data() + n);
        // To the elements that the message decodes to, and to others: among them are sums of NaN.
        float* const sums = means.data() + 2 * n;
        codec::read(exec, zeropp::message_sum{q, sum.data()}, where, sums);
        for (std::size_t i = 0; i != n; ++i) sums[n + i] = zeropp::bits_float(static_cast<std::uint32_t>(i) * 859433u);
        for (std::size_t i = 0; i != n; ++i) added[i] = bfloat16::from_bits(static_cast<std::uint16_t>(i * 13u));
        codec::read(exec, zeropp::message_sum{q, messages.data(), contributors, 3.0f}, where, sums,
                    {.accumulate = true});
        codec::read(exec, zeropp::message_sum{q, messages.data(), contributors}, where, sums + n, {.accumulate = true});
        codec::read(exec, zeropp::message_sum{q, messages.data(), contributors, 4.0f}, where, added.data(),
                    {.accumulate = true});
        codec::read(exec, zeropp::message_sum{q, messages.data(), contributors, 0.25f}, where, elements.data(),
                    {.accumulate = true});
    }

    /// Element by element; of NaN only that they are, but where something is added.
    bool operator==(const outcome& other) const {
        const auto alike = [](auto x, auto y) {
            const auto a = static_cast<float>(x);
            const auto b = static_cast<float>(y);
            return zeropp::float_bits(a) == zeropp::float_bits(b) || (a != a && b != b);
        };
        return sum == other.sum && std::equal(elements.begin(), elements.end(), other.elements.begin(), alike) &&
               std::equal(means.begin(), means.end(), other.means.begin(), alike) &&
               std::equal(added.begin(), added.end(), other.added.begin(),
                          [](bfloat16 x, bfloat16 y) { return x.bits == y.bits; });
    }
};

/// Messages of more contributors than are summed at a time, encoded from floats, halves and bfloat16.
template <class Q>
std::vector<std::byte> encoded(const Q& q, const std::vector<float>& tensor, int contributors, std::size_t n) {
    const zeropp::slices where = zeropp::slices::single(n, 0, n);
    const std::size_t bytes = zeropp::wire_bytes(q, n);
    std::vector<std::byte> messages(static_cast<std::size_t>(contributors) * bytes);
    std::vector<half> halves(n);
    std::vector<bfloat16> bfloat16s(n);
    for (std::size_t c = 0; c != static_cast<std::size_t>(contributors); ++c) {
        const float* const x = tensor.data() + c * 7;
        for (std::size_t i = 0; i != n; ++i) halves[i] = half(x[i]);
        for (std::size_t i = 0; i != n; ++i) bfloat16s[i] = bfloat16(x[i]);
        if (c % 3 == 0) codec::write(exec, q, x, where, messages.data() + c * bytes);
        if (c % 3 == 1) codec::write(exec, q, halves.data(), where, messages.data() + c * bytes);
        if (c % 3 == 2) codec::write(exec, q, bfloat16s.data(), where, messages.data() + c * bytes);
    }
    return messages;
}

/// Of encoded messages, and of messages of anything: codes and scales that no tensor
/// has, too large, negative or NaN.
template <class Q>
void check_targets(const Q& q = {}) {
    constexpr int contributors = 19;
    constexpr std::size_t n = 5003;
    const std::vector<float> tensor = mixed_floats(n + 7 * contributors, 91);
    random_source random(5);
    std::vector<std::byte> anything(contributors * zeropp::wire_bytes(q, n));
    for (std::byte& b : anything) b = static_cast<std::byte>(random.below(256));
    // The same with codes of less than half the largest magnitude: none is NaN.
    std::vector<std::byte> any_scale = anything;
    for (std::size_t i = 0; i != any_scale.size(); ++i) {
        const bool code = i % zeropp::wire_bytes(q, n) < zeropp::code_bytes<Q>(n);
        if (code) any_scale[i] &= std::byte{0xbf};
    }

    std::vector<std::byte> expected;
    std::vector<outcome<Q>> outcomes;
    on_every_target([&] {
        CAPTURE(zeropp::short_text(q.name()).str());
        const std::vector<std::byte> messages = encoded(q, tensor, contributors, n);
        const outcome<Q> of_encoded(q, messages, contributors, n);
        const outcome<Q> of_anything(q, anything, 2, n);
        const outcome<Q> of_any_scale(q, any_scale, contributors, n);
        if (expected.empty()) {
            expected = messages;
            outcomes = {of_encoded, of_anything, of_any_scale};
        }
        CHECK((messages == expected));
        CHECK((of_encoded == outcomes[0]));
        CHECK((of_anything == outcomes[1]));
        CHECK((of_any_scale == outcomes[2]));
    });
}

/// Of every element of two bytes to a float, and of floats of every kind to elements: as bits, what a NaN says too.
template <class T>
void check_conversions() {
    std::vector<T> elements;
    for (std::uint32_t bits = 0; bits != 0x10000; ++bits)
        elements.push_back(T::from_bits(static_cast<std::uint16_t>(bits)));
    // With long stretches of normal numbers, which some targets convert otherwise than others.
    std::vector<float> floats = mixed_floats(1 << 17, 17);
    for (std::uint32_t bits = 0; bits < 0xffff0000u; bits += 0x8001u) floats.push_back(zeropp::bits_float(bits));
    for (std::uint32_t bits = 0x3f7f0000u; bits != 0x3f820000u; ++bits) floats.push_back(zeropp::bits_float(bits));
    for (std::uint32_t bits = 0xff7f0000u; bits != 0xff800100u; ++bits) floats.push_back(zeropp::bits_float(bits));
    const zeropp::cast_to<float> q;
    std::vector<std::uint32_t> as_floats;
    std::vector<std::uint16_t> as_elements;
    on_every_target([&] {
        CAPTURE(zeropp::element_traits<T>::name);
        std::vector<float> loaded(elements.size());
        std::vector<T> stored(floats.size());
        codec::write(exec, q, elements.data(), zeropp::slices::single(elements.size(), 0, elements.size()),
                     reinterpret_cast<std::byte*>(loaded.data()));
        codec::read(exec, zeropp::message_sum{q, reinterpret_cast<const std::byte*>(floats.data())},
                    zeropp::slices::single(floats.size(), 0, floats.size()), stored.data());
        std::vector<std::uint32_t> bits_loaded;
        std::vector<std::uint16_t> bits_stored;
        for (const float x : loaded) bits_loaded.push_back(zeropp::float_bits(x));
        for (const T x : stored) bits_stored.push_back(x.bits);
        if (as_floats.empty()) {
            as_floats = bits_loaded;
            as_elements = bits_stored;
            for (std::size_t i = 0; i != elements.size(); ++i) {
                if (bits_loaded[i] != zeropp::float_bits(static_cast<float>(elements[i]))) FAIL("element " << i);
            }
            for (std::size_t i = 0; i != floats.size(); ++i) {
                if (bits_stored[i] != T(floats[i]).bits) FAIL("float " << i);
            }
        }
        CHECK((bits_loaded == as_floats));
        CHECK((bits_stored == as_elements));
    });
}

/// Blocks all above or below zero, of zeros of either sign, and with what is rare at their ends and in between: `rare`,
/// of which the first `finite` are finite. `least` is so small that a few thousand of it are not normal.
template <class T, std::size_t N>
void check_encoding(const std::uint16_t (&rare)[N], std::size_t finite, float least) {
    constexpr std::size_t n = 10 * 2048 + 100;
    random_source random(11);
    std::vector<T> tensor;
    for (std::size_t i = 0; i != n; ++i) {
        const std::size_t kind = i / 128 % 8;
        const float x = (static_cast<float>(random.below(4001)) - 2000.0f) * (kind == 7 ? least : 0.013f);
        std::uint16_t bits = T(x).bits;
        if (kind == 1) bits &= 0x7fff;
        if (kind == 2) bits |= 0x8000;
        if (kind == 3) bits &= 0x8000;
        if (kind == 4) bits = rare[random.below(finite)];
        const bool at_an_end = i % 128 == 0 || i % 128 == 127 || i % 128 == 64;
        if (kind > 4 && at_an_end && i / 1024 % 2 == 0) bits = rare[random.below(N)];
        tensor.push_back(T::from_bits(bits));
    }
    const auto check = [&]<class Q>(const Q& q) {
        const zeropp::slices where = zeropp::slices::single(n, 0, n);
        std::vector<std::byte> expected;
        on_every_target([&] {
            CAPTURE(zeropp::short_text(q.name()).str(), zeropp::element_traits<T>::name);
            std::vector<std::byte> message(zeropp::wire_bytes(q, n));
            codec::write(exec, q, tensor.data(), where, message.data());
            if (expected.empty()) expected = message;
            CHECK((message == expected));
        });
    };
    check(zeropp::block_integer<8, 256>());
    check(zeropp::block_integer<8, 64, zeropp::signed_absmax, half>());
    check(zeropp::block_integer<4, 128, zeropp::symmetric, half>());
    check(zeropp::block_integer<4, 128, zeropp::signed_absmax, bfloat16>());
    static_assert(zeropp::integer_quantizer<up_to_100>);
    check(up_to_100());
}

/// The message of fixed numbers, multiples of 1/256, as FNV-1a over its bytes.
template <class Q>
void check_fingerprint(std::uint64_t expected) {
    constexpr std::size_t n = 4099;
    const std::vector<float> tensor = exact_floats(n, 12345);
    on_every_target([&] {
        CAPTURE(zeropp::short_text(Q{}.name()).str());
        std::vector<std::byte> message(zeropp::wire_bytes(Q{}, n));
        codec::write(exec, Q{}, tensor.data(), zeropp::slices::single(n, 0, n), message.data());
        std::uint64_t hash = 0xcbf29ce484222325u;
        for (const std::byte b : message) hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x100000001b3u;
        CHECK(hash == expected);
    });
}

}  // namespace

TEST_CASE("messages of a few levels are those of a reference that shares no code", "[codec][host_target]") {
    check_fingerprint<zeropp::hadamard<zeropp::lloyd_max<2, 128>, 128>>(0xdc8e6fdcacca84edu);
    check_fingerprint<zeropp::hadamard<zeropp::lloyd_max<3, 128>, 128>>(0x7b82d5be52aa3c12u);
    check_fingerprint<zeropp::hadamard<zeropp::lloyd_max<4, 128>, 128>>(0xd87bba4298a27edfu);
}

TEST_CASE("every instruction set of the processor gives the same bits", "[codec][host_target]") {
    check_targets<zeropp::block_integer<8, 256>>();
    check_targets<zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>>();
    check_targets<zeropp::hadamard<zeropp::block_integer<4, 32, zeropp::signed_absmax, half>, 8>>();
    check_targets<zeropp::hadamard<zeropp::block_integer<4, 256>, 256>>();
    check_targets<zeropp::block_integer<6, 64, zeropp::asymmetric, half>>();
    check_targets<zeropp::block_float<zeropp::e4m3, 64>>();
    check_targets<zeropp::mxfp8<zeropp::e5m2>>();
    check_targets<zeropp::hadamard<zeropp::block_float<zeropp::e4m3, 32>, 16>>();
    check_targets<zeropp::mxfp4>();
    check_targets<zeropp::block_integer<4, 2048, zeropp::asymmetric>>();
    check_targets<zeropp::hadamard<zeropp::lloyd_max<3, 128>, 128>>();
    check_targets<zeropp::stochastic<zeropp::hadamard<zeropp::block_integer<4, 128, zeropp::asymmetric>>>>();
}

TEST_CASE("every instruction set converts every element of 16 bits, and every float to one, alike",
          "[codec][host_target]") {
    check_conversions<half>();
    check_conversions<bfloat16>();
}

TEST_CASE("every instruction set encodes every kind of element of 16 bits alike", "[codec][host_target]") {
    constexpr std::uint16_t bfloat16s[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x807f, 0x0080, 0x7f7f, 0xff7f,
                                           0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xffff, 0x3f80, 0xbf80};
    constexpr std::uint16_t halves[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x0400, 0x7bff, 0xfbff,
                                        0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xffff, 0x3c00, 0xbc00};
    check_encoding<bfloat16>(bfloat16s, 9, 0x1p-140f);
    check_encoding<half>(halves, 9, 0x1p-24f);
}

TEST_CASE("a rotation makes +0 of what is too small, with every instruction set", "[codec][host_target][rotation]") {
    using format = zeropp::hadamard<zeropp::block_float<zeropp::e4m3, 32>, 16>;
    constexpr std::size_t n = 512;
    std::vector<float> tensor(n);
    for (std::size_t i = 0; i < n; i += 16) tensor[i] = -0x1p-149f;
    on_every_target([&] {
        std::vector<std::byte> message(zeropp::wire_bytes(format(), n));
        codec::write(exec, format(), tensor.data(), zeropp::slices::single(n, 0, n), message.data());
        CHECK(std::count(message.begin(), message.end(), std::byte{0x80}) == 0);
    });
}
