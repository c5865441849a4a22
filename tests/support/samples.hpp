#pragma once
/// \file
/// Random numbers for tests, equal on every machine.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

namespace zeropp_test {

/// The splitmix64 generator.
class random_source {
public:
    explicit random_source(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15u;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    /// A number from 0 to n - 1.
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }

    /// Uniform in (0, 1).
    double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }

    double normal() {
        const double radius = std::sqrt(-2.0 * std::log(uniform()));
        return radius * std::cos(2.0 * std::numbers::pi * uniform());
    }

    /// Student's t with three degrees of freedom: heavy tails, as in gradients.
    double student_t3() {
        const double z = normal();
        const double a = normal();
        const double b = normal();
        const double c = normal();
        return z / std::sqrt((a * a + b * b + c * c) / 3.0);
    }

    /// A float with uniform bits: may be NaN, Inf or denormal.
    float any_float() { return std::bit_cast<float>(static_cast<std::uint32_t>(next() >> 32)); }

private:
    std::uint64_t state_;
};

inline std::vector<float> normal_floats(std::size_t n, std::uint64_t seed, double scale = 1.0) {
    random_source random(seed);
    std::vector<float> values(n);
    for (float& x : values) x = static_cast<float>(scale * random.normal());
    return values;
}

/// n multiples of 1/256, exact in any arithmetic: the tensors of results that are written down.
inline std::vector<float> exact_floats(std::size_t n, std::uint32_t seed) {
    std::vector<float> values;
    for (std::size_t i = 0; i != n; ++i) {
        seed = seed * 1664525u + 1013904223u;
        values.push_back((static_cast<float>(seed >> 16) - 32768.0f) / 256.0f);
    }
    return values;
}

/// n floats in stretches of different kinds: ordinary, zero, constant, shifted, tiny, denormal, huge, heavy-tailed. One
/// stretch in 64, so about one float in 10,000, has a NaN or Inf: every few tensors have one, and most blocks are
/// finite.
inline std::vector<float> mixed_floats(std::size_t n, std::uint64_t seed) {
    random_source random(seed);
    std::vector<float> values;
    while (values.size() < n) {
        const std::size_t kind = random.below(16);
        const std::size_t length = 1 + random.below(300);
        const double level = random.normal();
        const std::size_t broken = kind == 7 && random.below(4) == 0 ? values.size() + random.below(length) : n;
        for (std::size_t i = 0; i != length && values.size() < n; ++i) {
            const double x = random.normal();
            switch (kind) {
            case 0:
                values.push_back(random.below(2) == 0 ? 0.0f : -0.0f);
                break;
            case 1:
                values.push_back(static_cast<float>(level));
                break;
            case 2:
                values.push_back(static_cast<float>(1000.0 * level + x));
                break;
            case 3:
                values.push_back(static_cast<float>(x * 1e-30));
                break;
            case 4:
                values.push_back(static_cast<float>(x * 1e-42));
                break;
            case 5:
                values.push_back(static_cast<float>(x * 5e37));
                break;
            case 6:
                values.push_back(static_cast<float>(x * 3e5));
                break;
            case 7:
                values.push_back(static_cast<float>(random.student_t3()));
                break;
            default:
                values.push_back(static_cast<float>(x));
                break;
            }
        }
        if (broken < values.size()) {
            constexpr float infinity = std::numeric_limits<float>::infinity();
            const float kinds[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
            values[broken] = kinds[random.below(3)];
        }
    }
    return values;
}

}  // namespace zeropp_test
