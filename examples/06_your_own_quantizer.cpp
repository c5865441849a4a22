/// \file
/// A quantizer of your own, a value type of a few lines, in an all-gather. Four bits hold a sign and the block's
/// largest magnitude, divided by 1 to 128. Relative errors are at most a third for values above 1/170 of the largest.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

struct powers_of_two {
    static constexpr int block_size = 64;  // elements that share `params`
    static constexpr int code_bits = 4;

    struct params {
        float largest;
    };
    struct stats {  // integer maxima do not depend on the order, and rank NaN and Inf above all numbers
        std::uint32_t largest = 0;
        constexpr void add(float x) noexcept { merge({zeropp::float_bits(x) & 0x7fffffffu}); }
        constexpr void merge(const stats& s) noexcept { largest = s.largest > largest ? s.largest : largest; }
    };

    constexpr params fit(const stats& s) const noexcept {
        return {s.largest < zeropp::infinity_bits ? zeropp::bits_float(s.largest) : zeropp::quiet_nan};
    }
    constexpr std::uint32_t encode(float x, const params& p) const noexcept {
        std::uint32_t down = 0;
        for (float halfway = 0.75f * p.largest; down != 7 && (x < 0 ? -x : x) < halfway; halfway /= 2) ++down;
        return (x < 0 ? 8u : 0u) | down;
    }
    constexpr float decode(std::uint32_t code, const params& p) const noexcept {
        const float magnitude = p.largest / static_cast<float>(1u << (code & 7u));
        return (code & 8u) != 0 ? -magnitude : magnitude;
    }
    static constexpr zeropp::short_text name() { return "powers_of_two:64"; }
};
static_assert(zeropp::quantizer<powers_of_two>);

int main() try {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::flat(4), transport);
        std::vector<float> shard(1000), full(4000);
        for (std::size_t i = 0; i != shard.size(); ++i) shard[i] = std::sin(static_cast<float>(i + 1));
        zeropp::quantized_all_gather(zeropp::host{}, comm, powers_of_two{}, shard, full);

        float worst = 0;
        for (std::size_t i = 0; i != full.size(); ++i) {
            const float sent = shard[i % 1000];
            if (std::fabs(sent) > 0.01f) worst = std::fmax(worst, std::fabs(full[i] / sent - 1));
        }
        std::printf("rank %d: largest relative error %.3f\n", comm.rank(), worst);
        if (worst > 0.34f) throw zeropp::error("wrong result");
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
