#include <zeropp/quantizer/cast_to.hpp>

#include "codec/host/abilities.hpp"
#include "support/catch.hpp"
#include "support/toy_abilities.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::cast_to;

/// The message of toy_message_scaled, and what it decodes to.
std::vector<std::uint8_t> scaled_message(const std::vector<float>& values, std::size_t count,
                                         std::vector<float>& decoded) {
    const std::size_t scale = (count + (count + 7) / 8 * 3 + 3) / 4 * 4;
    std::vector<std::uint8_t> bytes((scale + 4 + 15) / 16 * 16);
    float absmax = 0.0f;
    for (const float x : values)
        if (std::isfinite(x)) absmax = std::max(absmax, std::fabs(x));
    std::memcpy(&bytes[scale], &absmax, 4);
    decoded.assign(values.size(), 0.0f);
    for (std::size_t begin = 0; begin < values.size(); begin += 8) {
        const std::size_t end = std::min(begin + 8, values.size());
        const bool finite =
            std::all_of(values.begin() + static_cast<std::ptrdiff_t>(begin),
                        values.begin() + static_cast<std::ptrdiff_t>(end), [](float x) { return std::isfinite(x); });
        std::memset(&bytes[count + begin / 8 * 3], finite ? 1 : 7, 3);
        for (std::size_t i = begin; i != end; ++i) {
            float code = 0.0f;
            if (finite && absmax > 0.0f) {
                code = static_cast<float>(
                    std::nearbyint(static_cast<double>(float_product(float_quotient(values[i], absmax), 100.0f))));
            }
            bytes[i] = static_cast<std::uint8_t>(static_cast<int>(code));
            decoded[i] =
                finite ? float_product(float_quotient(code, 100.0f), absmax) : std::numeric_limits<float>::quiet_NaN();
        }
    }
    return bytes;
}

/// toy_message_scaled of rotated elements.
struct rotated_and_scaled : toy_message_scaled {
    static constexpr int hadamard_size = 8;

    rotated_and_scaled scaled_for(float message_absmax) const noexcept {
        return {toy_message_scaled::scaled_for(message_absmax)};
    }
};
static_assert(zeropp::rotating_quantizer<rotated_and_scaled> && zeropp::message_scaled_quantizer<rotated_and_scaled>);

/// A written message, and reads and writes of a message and of a sum, against `message_of`. `of_rotated` is Q with a
/// rotation, or Q: a sum that stays rotated has the bytes of a sum without rotation.
template <class Q, class MessageOf, class Rotated>
void check_quantizer(const Q& q, MessageOf message_of, const Rotated& of_rotated) {
    for (const cut& c : telling_cuts(static_cast<std::size_t>(Q::block_size))) {
        CAPTURE(c.what);
        constexpr int contributors = 3;
        std::vector<std::uint8_t> messages;
        std::vector<std::vector<float>> first(static_cast<std::size_t>(c.slots));
        std::vector<std::vector<float>> sums(static_cast<std::size_t>(c.slots));
        for (int k = 0; k != contributors; ++k) {
            const std::vector<float> tensor = mixed_floats(c.elements, static_cast<std::uint64_t>(80 + k));
            std::vector<std::uint8_t> expected;
            for (int s = 0; s != c.slots; ++s) {
                std::vector<float> decoded;
                const auto message = message_of(carried_values(c, s, tensor), c.count, decoded);
                expected.insert(expected.end(), message.begin(), message.end());
                auto& sum = sums[static_cast<std::size_t>(s)];
                if (k == 0) sum = first[static_cast<std::size_t>(s)] = decoded;
                for (std::size_t i = 0; k != 0 && i != sum.size(); ++i) sum[i] = float_sum(sum[i], decoded[i]);
            }
            const bool as_documented = encoded(q, tensor.data(), c.slices()) == as_bytes(expected);
            CHECK(as_documented);
            messages.insert(messages.end(), expected.begin(), expected.end());
        }
        const auto bytes = as_bytes(messages);
        guarded<float> tensor(c.elements, 0x5a);
        const auto before = tensor.values();
        host_codec::read(zeropp::host{}, zeropp::message_sum{q, bytes.data()}, c.slices(), tensor.data());
        require_elements<float>("decode", c, tensor, before, [&](int s, std::size_t i, std::size_t) {
            return first[static_cast<std::size_t>(s)][i];
        });
        host_codec::read(zeropp::host{}, zeropp::message_sum{q, bytes.data(), contributors}, c.slices(), tensor.data());
        require_elements<float>("reduce_decode", c, tensor, before, [&](int s, std::size_t i, std::size_t) {
            return sums[static_cast<std::size_t>(s)][i];
        });
        std::vector<std::uint8_t> expected;
        for (const auto& sum : sums) {
            std::vector<float> decoded;
            const auto message = message_of(sum, c.count, decoded);
            expected.insert(expected.end(), message.begin(), message.end());
        }
        // The toys' NaN may be of either sign in a sum, and is stored only as what it means.
        const auto check_sum = [&](const auto& by) {
            guarded<std::byte> written(expected.size(), 0x5a);
            host_codec::write(zeropp::host{}, by, zeropp::message_sum{by, bytes.data(), contributors}, c.slices(),
                              written.data());
            require_bytes("reduce_encode", written, expected);
        };
        check_sum(q);
        check_sum(of_rotated);
    }
}

}  // namespace

TEST_CASE("a user's quantizer is given the largest magnitude of each message", "[codec][host][message_scaled]") {
    check_quantizer(toy_message_scaled{}, scaled_message, rotated_and_scaled{});
}

TEST_CASE("a message's scale is that of what is encoded, residuals included", "[codec][host][message_scaled]") {
    constexpr std::size_t n = 21;
    const auto where = zeropp::slices::single(n, 0, n);
    std::vector<float> tensor = normal_floats(n, 5);
    tensor[20] = 10.0f;
    std::vector<float> held(n, 0.25f);
    held[20] = 5.0f;
    tensor[3] = std::numeric_limits<float>::infinity();
    std::vector<std::byte> residuals(zeropp::wire_bytes(cast_to<float>{}, n));
    std::memcpy(residuals.data(), held.data(), n * sizeof(float));
    std::vector<float> values(n);
    for (std::size_t i = 0; i != n; ++i) values[i] = float_sum(tensor[i], held[i]);
    std::vector<float> decoded;
    const auto expected = scaled_message(values, n, decoded);
    const zeropp::feedback<cast_to<float>> f{{}, residuals.data(), residuals.data(), n};
    CHECK(encoded(toy_message_scaled{}, tensor.data(), where, f) == as_bytes(expected));
    std::vector<float> kept(n);
    std::memcpy(kept.data(), residuals.data(), n * sizeof(float));
    for (std::size_t i = 0; i != n; ++i) {
        // The first block holds Inf: what was held of it stays.
        CHECK(kept[i] == (i < 8 ? held[i] : float_sum(values[i], -decoded[i])));
    }
}
