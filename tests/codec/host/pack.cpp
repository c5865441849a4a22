#include <zeropp/codec/host/pack.hpp>

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

}  // namespace

TEST_CASE("codes of every width are packed bit by bit", "[codec][pack]") {
    check_widths(std::make_integer_sequence<int, 8>{});
    check_packing<16>();
    check_packing<32>();
}
