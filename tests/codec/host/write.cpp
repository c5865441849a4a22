#include <zeropp/codec/host/write.hpp>

#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/quantizer/block_integer.hpp>

#include "conformance/codec_laws.hpp"
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

namespace {

using namespace zeropp_test;

using quantizer = zeropp::block_integer<6, 512, zeropp::asymmetric, zeropp::half>;
constexpr reference_format format = reference_of<quantizer>::format;

}  // namespace

TEST_CASE("messages are decoded from any multiple of a piece on", "[codec][host]") {
    constexpr std::size_t n = 1501;
    const zeropp::wire_layout<quantizer> layout(n);
    const auto bytes = as_bytes(format.message(mixed_floats(n, 71), n));
    const auto all = format.elements(reinterpret_cast<const std::uint8_t*>(bytes.data()), n, n);
    std::size_t wrong = 0;
    for (std::size_t begin = 0; begin < n; begin += zeropp::detail::piece_size) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{513}, n}) {
            const std::size_t some = std::min(count, n - begin);
            guarded<float> values(some, 0xcd);
            zeropp::detail::decode_elements(quantizer{}, zeropp::detail::coded_section(layout, {}, bytes.data()), begin,
                                            some, [&](std::size_t i, float x) { values.data()[i] = x; });
            const auto decoded = values.values();
            for (std::size_t i = 0; i != some; ++i) {
                if (!same(decoded[i], all[begin + i])) ++wrong;
            }
            if (!values.intact()) ++wrong;
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("what a message has no elements for is zero", "[codec][host]") {
    constexpr std::size_t n = 1501;
    const zeropp::wire_layout<quantizer> layout(n);
    const std::vector<float> tensor = mixed_floats(n, 72);
    for (const std::size_t valid :
         {std::size_t{0}, std::size_t{1}, std::size_t{511}, std::size_t{512}, std::size_t{513}, n}) {
        guarded<std::byte> message(layout.bytes, 0xee);
        zeropp::detail::write_slots(quantizer{}, tensor.data(), zeropp::slices::single(valid, 0, n), message.data(),
                                    zeropp::none{}, nullptr);
        const std::vector<float> existing(tensor.begin(), tensor.begin() + static_cast<std::ptrdiff_t>(valid));
        require_bytes("message of " + std::to_string(valid), message, format.message(existing, n));
    }
}

TEST_CASE("the numbers that codecs are tested with are of every kind", "[codec]") {
    const std::vector<float> numbers = mixed_floats(64'000, 1);
    std::size_t nan = 0, infinite = 0, denormal = 0, as_before = 0;
    for (std::size_t i = 1; i != numbers.size(); ++i) {
        nan += std::isnan(numbers[i]) ? 1u : 0u;
        infinite += std::isinf(numbers[i]) ? 1u : 0u;
        denormal += std::fpclassify(numbers[i]) == FP_SUBNORMAL ? 1u : 0u;
        as_before += numbers[i] != 0 && numbers[i] == numbers[i - 1] ? 1u : 0u;
    }
    CHECK(nan >= 1);
    CHECK(infinite >= 2);
    CHECK(denormal > 1000);
    CHECK(as_before > 1000);
}
