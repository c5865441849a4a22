#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/stochastic.hpp>

#include "codec/host/abilities.hpp"
#include "support/catch.hpp"
#include "support/host_targets.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::asymmetric;
using zeropp::block_integer;
using zeropp::hadamard;
using zeropp::half;
using zeropp::slices;
using zeropp::stochastic;

constexpr std::uint64_t seed = 0x123456789abcdef0u;
constexpr std::uint64_t step = 0x100000007u;
using base = block_integer<4, 128>;
const stochastic<base> q(seed, step);

/// Noise of element `index` of a tensor, or of a sum at that index: 16 bits of philox4x32-10, in steps of 2^-15 about
/// zero. The key is the seed. The counter is (index / 8, with the highest bit set for a sum; step).
float noise_of_element(std::uint64_t index, bool sum) {
    const std::uint64_t granule = index / 8 | (sum ? std::uint64_t{1} << 63 : 0);
    constexpr std::uint64_t low = 0xffffffffu;
    std::uint64_t c[4] = {granule & low, granule >> 32, step & low, step >> 32};
    std::uint64_t key[2] = {seed & low, seed >> 32};
    for (int round = 0; round != 10; ++round) {
        const std::uint64_t first = 0xd2511f53u * c[0];
        const std::uint64_t second = 0xcd9e8d57u * c[2];
        c[0] = (second >> 32) ^ c[1] ^ key[0];
        c[1] = second & low;
        c[2] = (first >> 32) ^ c[3] ^ key[1];
        c[3] = first & low;
        key[0] = (key[0] + 0x9e3779b9u) & low;
        key[1] = (key[1] + 0xbb67ae85u) & low;
    }
    const std::uint64_t bits = c[index % 8 / 2] >> (index % 2 * 16) & 0xffffu;
    // The lowest bit is unused: there are 32768 values, the first at -1/2 + 2^-16.
    return static_cast<float>(static_cast<double>(bits / 2) / 32768.0 - 0.5 + 0x1p-16);
}

/// The noise of the elements that slot s carries, by their indices in the tensor that all ranks know.
std::vector<float> noise_of_slot(const cut& c, int s, std::size_t origin, bool sums) {
    std::vector<float> noise;
    for (const std::size_t i : c.carried(s)) noise.push_back(noise_of_element(origin + i, sums));
    return noise;
}

slices with_origin(const cut& c, std::size_t origin) {
    slices where = c.slices();
    where.origin = origin;
    return where;
}

}  // namespace

TEST_CASE("codes are rounded by the noise of their element's index", "[codec][host][stochastic]") {
    const reference_format& f = reference_of<base>::format;
    on_every_target([&] {
        for (const cut& c : telling_cuts(128)) {
            const std::vector<float> tensor = mixed_floats(c.elements, 31);
            for (const std::size_t origin : {std::size_t{0}, std::size_t{5}, (std::size_t{1} << 35) + 8}) {
                CAPTURE(c.what, origin);
                std::vector<std::byte> expected;
                for (int s = 0; s != c.slots; ++s) {
                    append(expected,
                           f.message(carried_values(c, s, tensor), c.count, noise_of_slot(c, s, origin, false)));
                }
                const bool as_documented = encoded(q, tensor.data(), with_origin(c, origin)) == expected;
                CHECK(as_documented);
            }
        }
    });
}

TEST_CASE("elements of messages of several parts have the noise of their index too", "[codec][host][stochastic]") {
    constexpr std::size_t n = 2 * 65'536 + 300;
    constexpr std::size_t origin = 21;
    const std::vector<float> tensor = mixed_floats(n, 33);
    std::vector<float> noise;
    for (std::size_t i = 0; i != n; ++i) noise.push_back(noise_of_element(origin + i, false));
    std::vector<std::byte> expected;
    append(expected, reference_of<base>::format.message(tensor, n, noise));
    const bool as_documented = encoded(q, tensor.data(), slices::single(n, 0, n, origin)) == expected;
    CHECK(as_documented);
}

TEST_CASE("sums are rounded by a noise of their own", "[codec][host][stochastic]") {
    using to = block_integer<8, 64, asymmetric, half>;
    const reference_format& f = reference_of<base>::format;
    for (const cut& c : telling_cuts(128)) {
        const std::size_t origin = 3;
        const auto messages = contributions(f, c, 3);
        const auto sums = reference_sums(f, c, messages, 3);
        std::vector<std::byte> expected;
        for (int s = 0; s != c.slots; ++s) {
            append(expected, reference_of<to>::format.message(sums[static_cast<std::size_t>(s)], c.count,
                                                              noise_of_slot(c, s, origin, true)));
        }
        const auto check = [&](const auto& sum_of, const auto& encoded_by) {
            guarded<std::byte> written(expected.size(), 0x5a);
            host_codec::write(zeropp::host{}, encoded_by, zeropp::message_sum{sum_of, as_bytes(messages).data(), 3},
                              with_origin(c, origin), written.data());
            CAPTURE(c.what);
            const bool as_documented = written.values() == expected && written.intact();
            CHECK(as_documented);
        };
        check(q, stochastic<to>(seed, step));
        // A sum that stays rotated has the codes of the quantizers without rotation.
        check(hadamard<stochastic<base>>{q}, stochastic<hadamard<to>>(seed, step));
    }
}

TEST_CASE("neither chunks nor slots nor the part of a tensor at hand change a code", "[codec][host][stochastic]") {
    constexpr std::size_t n = 8 * 128 * 3 + 77;
    constexpr std::size_t origin = 1001;
    const std::vector<float> tensor = normal_floats(n, 17);
    const auto codes = [&](const slices& where, const float* elements) {
        const auto message = encoded(q, elements, where);
        const std::size_t bytes = (where.size(0) * 4 + 7) / 8;
        return std::vector<std::byte>(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(bytes));
    };
    const auto whole_tensor = codes(slices::single(n, 0, n, origin), tensor.data());
    for (const std::size_t chunks : {std::size_t{1}, std::size_t{2}, std::size_t{8}}) {
        const std::size_t chunk = (n / 128 + chunks) / chunks * 128;
        std::vector<std::byte> by_chunk;
        std::vector<std::byte> by_part;
        for (std::size_t begin = 0; begin < n; begin += chunk) {
            const auto more = codes(slices::single(n, begin, chunk, origin), tensor.data());
            by_chunk.insert(by_chunk.end(), more.begin(), more.end());
            // A rank that holds only this part.
            const std::size_t rest = std::min(chunk, n - begin);
            const auto part = codes(slices::single(rest, 0, rest, origin + begin), tensor.data() + begin);
            by_part.insert(by_part.end(), part.begin(), part.end());
        }
        CAPTURE(chunks);
        CHECK(by_chunk == whole_tensor);
        CHECK(by_part == whole_tensor);
    }
    // Another step or seed changes many.
    const auto message = encoded(stochastic<base>(seed, step + 1), tensor.data(), slices::single(n, 0, n, origin));
    std::size_t different = 0;
    for (std::size_t i = 0; i != whole_tensor.size(); ++i) different += message[i] != whole_tensor[i] ? 1u : 0u;
    CHECK(different > n / 10);
}
