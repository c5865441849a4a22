#include <zeropp/codec/host/pack.hpp>

#include <zeropp/layout/ternary.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>

#include "support/catch.hpp"
#include "support/guarded.hpp"
#include "support/samples.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_test;

template <int Bits>
void check_packing() {
    using code_word = zeropp::detail::code_word<Bits>;
    constexpr std::size_t bits = Bits;
    std::size_t wrong = 0;
    for (std::size_t n = 0; n != 41; ++n) {
        random_source random(n + 1);
        std::vector<code_word> codes(n);
        for (auto& code : codes) {
            // The ends of the range as well as what lies between.
            const auto top = static_cast<code_word>((std::uint64_t{1} << bits) - 1u);
            const std::size_t kind = random.below(4);
            code = kind == 0 ? code_word{0} : kind == 1 ? top : static_cast<code_word>(random.next() & top);
        }
        std::vector<std::byte> expected((n * bits + 7) / 8);
        for (std::size_t bit = 0; bit != n * bits; ++bit) {
            if ((codes[bit / bits] >> bit % bits & 1u) != 0) expected[bit / 8] |= std::byte{1} << bit % 8;
        }
        for (const std::uint8_t pattern : {std::uint8_t{0x00}, std::uint8_t{0xff}}) {
            guarded<std::byte> packed(expected.size(), pattern);
            zeropp::detail::pack<Bits>(codes.data(), n, packed.data());
            if (packed.values() != expected || !packed.intact()) ++wrong;

            guarded<code_word> unpacked(n, pattern);
            guarded<std::byte> source(expected, pattern);
            zeropp::detail::unpack<Bits>(source.data(), n, unpacked.data());
            if (unpacked.values() != codes || !unpacked.intact()) ++wrong;
        }
    }
    CAPTURE(Bits);
    CHECK(wrong == 0);
}

template <int... Bits>
void check_widths(std::integer_sequence<int, Bits...>) {
    (check_packing<Bits + 1>(), ...);
}

/// The k-th digit of a byte to base 3, after 243 is subtracted from larger bytes.
std::uint8_t digit(unsigned byte, std::size_t k) {
    byte = byte < 243 ? byte : byte - 243;
    for (; k != 0; --k) byte /= 3;
    return static_cast<std::uint8_t>(byte % 3);
}

/// Codes in groups of `Block` elements, at most 128.
template <int Block>
void check_ternary() {
    using Q = zeropp::lloyd_max<3, Block>;
    constexpr std::size_t group = Block < 128 ? Block : 128;
    std::size_t wrong = 0;
    for (std::size_t n = 0; n != 300; ++n) {
        random_source random(n + 1);
        std::vector<std::uint8_t> any;
        std::vector<std::uint8_t> codes(n);
        for (std::size_t i = 0; i != n; ++i) {
            if (i % group % 5 == 0) any.push_back(static_cast<std::uint8_t>(random.below(256)));
            codes[i] = digit(any.back(), i % group % 5);
        }
        // The bytes of these codes: digits of a byte that no code has are zero.
        std::vector<std::byte> expected;
        for (std::size_t i = 0, power = 1; i != n; ++i, power *= 3) {
            if (i % group % 5 == 0) expected.push_back(std::byte{0}), power = 1;
            expected.back() = static_cast<std::byte>(static_cast<std::size_t>(expected.back()) + power * codes[i]);
        }
        if (zeropp::code_bytes<Q>(n) != any.size()) ++wrong;
        for (const std::uint8_t pattern : {std::uint8_t{0x00}, std::uint8_t{0xff}}) {
            guarded<std::byte> packed(expected.size(), pattern);
            zeropp::detail::pack_codes<Q>(codes.data(), n, packed.data());
            if (packed.values() != expected || !packed.intact()) ++wrong;

            guarded<std::uint8_t> unpacked(n, pattern);
            guarded<std::uint8_t> source(any, pattern);
            zeropp::detail::unpack_codes<Q>(reinterpret_cast<const std::byte*>(source.data()), n, unpacked.data());
            if (unpacked.values() != codes || !unpacked.intact()) ++wrong;
        }
    }
    CAPTURE(Block);
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("codes of every width are packed bit by bit", "[codec][pack]") {
    check_widths(std::make_integer_sequence<int, 8>{});
    check_packing<16>();
    check_packing<32>();
}

TEST_CASE("five codes of three values share a byte, and a byte of any value has five", "[codec][pack]") {
    check_ternary<8>();
    check_ternary<64>();
    check_ternary<128>();
    check_ternary<512>();
    for (unsigned byte = 0; byte != 256; ++byte) {
        std::uint32_t expected = 0;
        for (std::size_t k = 0; k != 5; ++k) expected |= std::uint32_t{digit(byte, k)} << 2 * k;
        CHECK(zeropp::detail::ternary_codes(byte) == expected);
        CHECK(zeropp::detail::ternary_byte(expected | 0xfffffc00u) == byte % 243);
    }
}
