#pragma once
/// \file
/// Tensors on which formats are measured.

#include <zeropp/core/math.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

namespace zeropp_bench {

/// `gauss` has variance 1, `student_t3` variance 3. `uniform` lies in (-1, 1). `sparse` has 90 % zeros, and `gauss`
/// otherwise.
enum class distribution { gauss, student_t3, uniform, sparse };

inline std::string name_of(distribution d) {
    switch (d) {
    case distribution::gauss:
        return "gauss";
    case distribution::student_t3:
        return "t3";
    case distribution::uniform:
        return "uniform";
    case distribution::sparse:
        return "sparse";
    }
    return {};
}

/// Element `index` of the tensor `seed`. Any rank can compute any other rank's tensor.
inline float value_of(distribution d, std::uint64_t seed, std::size_t index) {
    const auto wide = static_cast<std::uint64_t>(index);
    const zeropp::random_words random =
        zeropp::philox({{static_cast<std::uint32_t>(wide), static_cast<std::uint32_t>(wide >> 32), 0, 0}}, seed);
    const auto uniform = [&](int i) { return (static_cast<double>(random.word[i]) + 0.5) * 0x1p-32; };
    const auto radius = [&](int i) { return std::sqrt(-2 * std::log(uniform(i))); };
    const double angle = 2 * std::numbers::pi * uniform(1);
    const double normal = radius(0) * std::cos(angle);
    switch (d) {
    case distribution::gauss:
        break;
    case distribution::student_t3: {
        // Divides by three more normal numbers' squares: one of this pair, and both of another as its squared radius.
        const double other = radius(0) * std::sin(angle);
        return static_cast<float>(normal / std::sqrt((other * other + radius(2) * radius(2)) / 3));
    }
    case distribution::uniform:
        return static_cast<float>(2 * uniform(0) - 1);
    case distribution::sparse:
        return uniform(2) < 0.9 ? 0.0f : static_cast<float>(normal);
    }
    return static_cast<float>(normal);
}

inline std::vector<float> values_of(distribution d, std::uint64_t seed, std::size_t n) {
    std::vector<float> values(n);
    for (std::size_t i = 0; i != n; ++i) values[i] = value_of(d, seed, i);
    return values;
}

/// Tensors that are measured together, each as one message.
struct sample {
    std::string name;
    std::vector<std::vector<float>> tensors;
};

/// Throws std::runtime_error unless `file` is one of floats.
inline std::vector<float> read_floats(const std::string& file) {
    const std::size_t bytes = std::filesystem::file_size(file);
    std::vector<float> tensor(bytes / sizeof(float));
    std::ifstream in(file, std::ios::binary);
    in.read(reinterpret_cast<char*>(tensor.data()), static_cast<std::streamsize>(bytes));
    if (!in || tensor.empty() || bytes % sizeof(float) != 0) throw std::runtime_error("not a file of floats: " + file);
    return tensor;
}

/// Reads files of floats, one tensor each. Throws std::runtime_error for other files.
inline sample read_sample(const std::string& name, const std::vector<std::string>& files) {
    sample s{name, {}};
    for (const std::string& file : files) s.tensors.push_back(read_floats(file));
    return s;
}

}  // namespace zeropp_bench
