#include <zeropp/quantizer/spike_reserving.hpp>

#include "support/catch.hpp"
#include "support/integer_models.hpp"
#include "support/reference.hpp"
#include "support/samples.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::bfloat16;
using zeropp::half;
using zeropp::spike_reserving;

constexpr float largest = std::numeric_limits<float>::max();

struct placed {
    float x;
    std::uint32_t at;
};

/// A spike-reserving quantizer for the laws of the others, and the description of what lies between the spikes.
struct spike_model {
    quantizer_model quantizer;
    reference_format between;
    bool wide_positions;
    /// The bytes of the stats of the elements, taken in groups that merge as in a tree given by `shape`, and the
    /// parameters that are fitted to them.
    std::vector<std::uint8_t> (*merged)(const std::vector<std::vector<placed>>& groups, std::uint64_t shape);
};

template <class Q>
typename Q::stats stats_of(const std::vector<placed>& elements) {
    typename Q::stats s;
    for (const placed& e : elements) s.add(e.x, e.at);
    return s;
}

/// Half a step; for the two extremes, their rounding to a `Scale`.
template <int Bits, int BlockSize, class Scale>
float error_bound(const spike_reserving<Bits, BlockSize, Scale>& q, float x,
                  const typename spike_reserving<Bits, BlockSize, Scale>::params& p, std::uint32_t position) {
    if (position == p.low_at || position == p.high_at) return std::fabs(q.decode(0, p, position) - x);
    return zeropp::block_integer<Bits, BlockSize, zeropp::asymmetric, Scale>().error_bound(x, p.between);
}

template <class Q>
quantized_block spike_round_trip(const std::vector<float>& block) {
    const Q q{};
    typename Q::stats stats;
    for (std::uint32_t i = 0; i != block.size(); ++i) stats.add(block[i], i);
    const auto p = q.fit(stats);
    quantized_block result;
    result.params = model_of::bytes(p);
    for (std::uint32_t i = 0; i != block.size(); ++i) {
        result.codes.push_back(q.encode(block[i], p, i));
        result.decoded.push_back(q.decode(result.codes.back(), p, i));
        result.bounds.push_back(error_bound(q, block[i], p, i));
    }
    return result;
}

template <int Bits, int BlockSize, class Scale = half>
spike_model describe_spike() {
    using Q = spike_reserving<Bits, BlockSize, Scale>;
    static_assert(std::is_trivially_copyable_v<Q> && std::is_trivially_copyable_v<typename Q::params> &&
                  std::is_trivially_copyable_v<typename Q::stats> && std::is_aggregate_v<typename Q::stats>);
    static_assert(std::has_unique_object_representations_v<typename Q::stats> && sizeof(typename Q::stats) % 4 == 0);
    quantizer_model model{Q::name().str(),      BlockSize, (1u << Bits) - 1u, false,
                          &spike_round_trip<Q>, nullptr,   nullptr,           nullptr};
    return {model,
            {scheme::asymmetric, Bits, BlockSize, format_of<Scale>},
            sizeof(typename Q::position_type) == 2,
            [](const std::vector<std::vector<placed>>& groups, std::uint64_t shape) {
                std::vector<typename Q::stats> all;
                for (const auto& group : groups) all.push_back(stats_of<Q>(group));
                random_source random(shape);
                while (all.size() > 1) {
                    const std::size_t at = random.below(all.size() - 1);
                    all[at].merge(all[at + 1]);
                    all.erase(all.begin() + static_cast<std::ptrdiff_t>(at) + 1);
                }
                std::vector<std::uint8_t> bytes = model_of::bytes(all[0]);
                const auto params = model_of::bytes(Q{}.fit(all[0]));
                bytes.insert(bytes.end(), params.begin(), params.end());
                return bytes;
            }};
}

std::vector<spike_model> all_models() {
    return {describe_spike<4, 128>(),           describe_spike<3, 32>(),         describe_spike<2, 8>(),
            describe_spike<4, 256, bfloat16>(), describe_spike<4, 512>(),        describe_spike<4, 64, float>(),
            describe_spike<2, 32, bfloat16>(),  describe_spike<3, 1024, float>()};
}

/// A block by the definition: sorted, its ends set aside, what is left as asymmetric integers of its own.
struct spike_reference {
    std::size_t low_at = 0;
    std::size_t high_at = 0;
    std::vector<std::uint8_t> params;
    std::vector<float> decoded;

    spike_reference(const spike_model& m, const std::vector<float>& block) {
        const reference_format& format = m.between;
        // Like the floats, negative zero before positive zero, equal ones by position.
        std::vector<std::size_t> order(block.size());
        for (std::size_t i = 0; i != order.size(); ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            if (block[a] != block[b]) return block[a] < block[b];
            return std::signbit(block[a]) && !std::signbit(block[b]);
        });
        low_at = order.front();
        high_at = order.back();
        std::vector<float> rest;
        for (std::size_t k = 1; k + 1 < order.size(); ++k) rest.push_back(block[order[k]]);
        // Two equal elements have themselves between them, two others nothing.
        if (block.size() == 2 && bits_of(block[0]) == bits_of(block[1])) rest = {block[0]};
        if (rest.empty()) rest = {0.0f};
        reference_format::parameters between = format.fit(rest.data(), rest.size());

        const auto kept = [&](std::size_t at) {
            const double value = format.stored.value(format.stored.nearest(static_cast<double>(block[at])));
            return static_cast<float>(value);
        };
        float low = kept(low_at);
        float high = kept(high_at);
        const bool holds = std::all_of(block.begin(), block.end(), [](float x) { return is_finite(double{x}); }) &&
                           is_finite(double{low}) && is_finite(double{high}) && !is_nan(between.step);
        if (!holds) {
            low = high = between.step = between.minimum = std::numeric_limits<float>::quiet_NaN();
            low_at = high_at = 0;
        }
        for (std::size_t i = 0; i != block.size(); ++i) {
            const float other = format.decode(format.encode(block[i], between), between);
            decoded.push_back(i == low_at ? low : i == high_at ? high : other);
            if (!holds) decoded.back() = std::numeric_limits<float>::quiet_NaN();
        }
        for (const float number : {between.step, between.minimum, low, high}) {
            const std::uint32_t code = is_nan(number)
                                           ? format.stored.infinity() | (1u << (format.stored.mantissa_bits - 1))
                                           : format.stored.nearest(static_cast<double>(number));
            put(code, format.stored_bytes());
        }
        put(static_cast<std::uint32_t>(low_at), m.wide_positions ? 2 : 1);
        put(static_cast<std::uint32_t>(high_at), m.wide_positions ? 2 : 1);
    }

private:
    void put(std::uint32_t number, std::size_t bytes) {
        for (std::size_t i = 0; i != bytes; ++i) params.push_back(static_cast<std::uint8_t>(number >> (8 * i)));
    }
};

std::vector<std::vector<float>> telling_blocks(std::size_t block_size) {
    std::vector<std::vector<float>> blocks{{0.0f},
                                           {-0.0f},
                                           {3.0f},
                                           {1.0f, -1.0f},
                                           {-1.0f, 1.0f},
                                           {2.0f, 2.0f},
                                           {0.0f, -0.0f},
                                           {-0.0f, 0.0f, -0.0f, 0.0f},
                                           {1.0f, 2.0f, 3.0f},
                                           {3.0f, 1.0f, 2.0f},
                                           {5.0f, 5.0f, 5.0f, 5.0f},
                                           {-7.0f, 1.0f, 1.0f, 9.0f},
                                           {1.0f, 1.0f, -7.0f, -7.0f, 9.0f, 9.0f},
                                           {float_of(1), -float_of(1), 0.0f},
                                           {largest, -largest, 1.0f},
                                           {largest, -largest, largest, -largest},
                                           {65504.0f, -65504.0f, 60000.0f, -60000.0f},
                                           {65520.0f, 1.0f, 2.0f},
                                           {1.0f, 70000.0f, 70000.0f, 2.0f},
                                           {1e-9f, -1e-9f, 1e-8f},
                                           {float_of(0x7f800000u), 1.0f, 2.0f},
                                           {1.0f, float_of(0xff800000u)},
                                           {float_of(0x7fffffffu)},
                                           {float_of(0xffffffffu), 0.0f, 1.0f}};
    random_source random(81);
    for (int i = 0; i != 600; ++i) {
        std::vector<float> block(1 + random.below(i % 3 == 0 ? 5 : block_size));
        const double level = std::ldexp(1.0, static_cast<int>(random.below(60)) - 40);
        for (float& x : block) {
            const double value = i % 4 == 0 ? std::nearbyint(random.normal() * 2) : random.student_t3();
            x = static_cast<float>(value * level);
        }
        // One-hot.
        if (i % 11 == 0) {
            for (float& x : block) x = 0.0f;
            block[random.below(block.size())] = static_cast<float>(level * random.normal());
        }
        blocks.push_back(block);
    }
    return blocks;
}

/// Signal to quantization noise in decibels.
double sqnr(const spike_model& m, const std::vector<float>& values) {
    double signal = 0;
    double noise = 0;
    for (std::size_t begin = 0; begin != values.size(); begin += m.quantizer.block_size) {
        const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
        const std::vector<float> block(first, first + static_cast<std::ptrdiff_t>(m.quantizer.block_size));
        const auto decoded = m.quantizer.round_trip(block).decoded;
        for (std::size_t i = 0; i != block.size(); ++i) {
            const double x = static_cast<double>(block[i]);
            const double e = static_cast<double>(decoded[i]) - x;
            signal += x * x;
            noise += e * e;
        }
    }
    return 10.0 * std::log10(signal / noise);
}

}  // namespace

TEST_CASE("spike-reserving quantizers keep the laws", "[quantizer][spike_reserving]") {
    for (const auto& m : all_models()) {
        check_zeros(m.quantizer);
        check_not_finite(m.quantizer);
        check_blocks(m.quantizer);
    }
}

TEST_CASE("spike-reserving quantizers compute what their definition says, to the bit", "[quantizer][spike_reserving]") {
    for (const auto& m : all_models()) {
        for (const auto& block : telling_blocks(m.quantizer.block_size)) {
            if (block.size() > m.quantizer.block_size) continue;
            const quantized_block actual = m.quantizer.round_trip(block);
            const spike_reference expected(m, block);
            const bool right = actual.params == expected.params &&
                               std::equal(actual.decoded.begin(), actual.decoded.end(), expected.decoded.begin(), same);
            if (right) continue;
            CAPTURE(m.quantizer.name, text_of(block), text_of(actual.decoded), text_of(expected.decoded));
            FAIL_CHECK("not what the definition gives");
            return;
        }
    }
}

TEST_CASE("the stats of spikes merge in any order", "[quantizer][spike_reserving]") {
    const auto m = describe_spike<4, 128>();
    const std::vector<float> special{0.0f,
                                     -0.0f,
                                     1.0f,
                                     -1.0f,
                                     float_of(1),
                                     3e38f,
                                     float_of(0x7f800000u),
                                     float_of(0xff800000u),
                                     float_of(0x7fffffffu),
                                     float_of(0xffffffffu)};
    // NaN with the key of an empty side, away from the position of one.
    for (const std::uint32_t bits : {0x7fffffffu, 0xffffffffu}) {
        const std::vector<placed> alone{{float_of(bits), 5}};
        const auto whole = m.merged({alone}, 0);
        CHECK(m.merged({{}, alone}, 0) == whole);
        CHECK(m.merged({alone, {}}, 0) == whole);
        CHECK(whole[16] == 5);
        CHECK(whole[20] == 5);
    }
    random_source random(82);
    for (std::uint32_t round = 0; round != 400; ++round) {
        std::vector<placed> elements;
        for (std::uint32_t at = 0; at != 1 + round % 9; ++at) {
            const bool any = random.below(2) == 0;
            elements.push_back({any ? special[random.below(special.size())] : static_cast<float>(random.below(3)), at});
        }
        const auto whole = m.merged({elements}, 0);
        for (int order = 0; order != 8; ++order) {
            // Elements in any order, in any groups, of which some are empty.
            for (std::size_t i = elements.size(); i > 1; --i) std::swap(elements[i - 1], elements[random.below(i)]);
            std::vector<std::vector<placed>> groups(1 + random.below(6));
            for (const placed& e : elements) groups[random.below(groups.size())].push_back(e);
            CHECK(m.merged(groups, random.next()) == whole);
        }
    }
}

TEST_CASE("spikes by hand", "[quantizer][spike_reserving]") {
    const auto m = describe_spike<4, 128>();
    const auto r = m.quantizer.round_trip({1.0f, 100.25f, 4.6f, -3000.0f, 16.0f, 7.0f});
    CHECK(r.decoded == std::vector<float>{1, 100.25f, 5, -3000, 16, 7});
    CHECK(r.params.size() == 10);
    CHECK(r.params[8] == 3);
    CHECK(r.params[9] == 1);
    // Of equal elements the smallest is the first, the largest the last.
    const auto equal = m.quantizer.round_trip({5.0f, 5.0f, 5.0f});
    CHECK(equal.params[8] == 0);
    CHECK(equal.params[9] == 2);
    CHECK(equal.decoded == std::vector<float>{5, 5, 5});
    // Up to three elements are as exact as a Scale.
    CHECK(describe_spike<2, 8, float>().quantizer.round_trip({0.1f, -1e30f, 1e-30f}).decoded ==
          std::vector<float>{0.1f, -1e30f, 1e-30f});
    CHECK(describe_spike<2, 8, float>().quantizer.round_trip({largest, -largest}).decoded ==
          std::vector<float>{largest, -largest});
    // The last position of the longest block.
    std::vector<float> longest(65536, 1.0f);
    longest.back() = -8.0f;
    longest[65534] = 8.0f;
    CHECK(spike_reference(describe_spike<2, 65536>(), longest).low_at == 65535);
    CHECK(describe_spike<2, 65536>().quantizer.round_trip(longest).decoded == longest);
    // The smallest wide positions and the largest narrow ones.
    std::vector<float> at_255(256, 1.0f);
    at_255[255] = 4.0f;
    at_255[254] = -4.0f;
    CHECK(describe_spike<2, 256>().quantizer.round_trip(at_255).decoded == at_255);
}

TEST_CASE("what spike-reserving quantizers are off is what they say, and hardly less", "[quantizer][spike_reserving]") {
    for (const auto& m : all_models()) {
        CAPTURE(m.quantizer.name);
        double closest = 0;
        random_source random(83);
        for (int round = 0; round != 1000; ++round) {
            const std::vector<float> block = normal_floats(8, random.next());
            const auto result = m.quantizer.round_trip(block);
            std::vector<float> sorted = block;
            std::sort(sorted.begin(), sorted.end());
            const double unit = std::ldexp(1.0, -m.between.stored.mantissa_bits);
            const double least = static_cast<double>(sorted[1]);
            const double range = static_cast<double>(sorted[6]) - least + unit * std::fabs(least) + 0x1p-24;
            const double half_step = (range / m.between.furthest() * (1.0 + unit) + 0x1p-24) / 2;
            for (std::size_t i = 0; i != block.size(); ++i) {
                const double x = static_cast<double>(block[i]);
                const double bound = static_cast<double>(result.bounds[i]);
                const bool spike = block[i] == sorted[0] || block[i] == sorted[7];
                CHECK(bound <=
                      (spike ? std::fabs(x) * unit / 2 : half_step * (1.0 + 0x1p-11) + std::fabs(x) * 0x1p-21));
                if (!spike) closest = std::max(closest, std::fabs(static_cast<double>(result.decoded[i]) - x) / bound);
            }
        }
        CHECK(closest > 0.99);
        CHECK(closest <= 1.0);
    }
}

TEST_CASE("accuracy with spikes reserved", "[quantizer][spike_reserving][accuracy]") {
    const std::vector<float> gauss = normal_floats(200'192, 84);
    random_source random(85);
    std::vector<float> heavy_tailed(1'000'448);
    for (float& x : heavy_tailed) x = static_cast<float>(random.student_t3());
    const auto check = [&](const spike_model& m, double of_gauss, double of_heavy_tailed) {
        const double on_gauss = sqnr(m, gauss);
        const double on_heavy_tailed = sqnr(m, heavy_tailed);
        CAPTURE(m.quantizer.name, on_gauss, on_heavy_tailed);
        CHECK(on_gauss >= of_gauss - 0.1);
        // The sample's largest elements decide.
        CHECK(on_heavy_tailed >= of_heavy_tailed - 0.5);
    };
    check(describe_spike<4, 32>(), 24.4, 25.3);
    check(describe_spike<4, 128>(), 21.4, 20.0);
}

TEST_CASE("spike-reserving quantizers take few bytes of parameters", "[quantizer][spike_reserving]") {
    STATIC_REQUIRE(sizeof(spike_reserving<4, 128>::params) == 10);
    STATIC_REQUIRE(sizeof(spike_reserving<4, 256, bfloat16>::params) == 10);
    STATIC_REQUIRE(sizeof(spike_reserving<4, 512>::params) == 12);
    STATIC_REQUIRE(sizeof(spike_reserving<4, 128, float>::params) == 20);
    STATIC_REQUIRE(sizeof(spike_reserving<4, 128>::stats) == 24);
}

TEST_CASE("names of spike-reserving quantizers", "[quantizer][spike_reserving]") {
    CHECK(spike_reserving<4, 128>::name().str() == "spike4:128");
    CHECK(spike_reserving<2, 32, bfloat16>::name().str() == "spike2:32:bf16");
    CHECK(spike_reserving<3, 512, float>::name().str() == "spike3:512:fp32");
}
