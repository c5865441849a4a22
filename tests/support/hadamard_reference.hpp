#pragma once
/// \file
/// Walsh-Hadamard transforms by definition: a matrix of signs, in double.

#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

namespace zeropp_test {

/// True if the matrix has -1: `row` and `column` share an odd number of 1 bits.
inline bool rotation_sign(std::size_t row, std::size_t column) { return std::popcount(row & column) % 2 != 0; }

/// Factor of a rotation: the power of two at or next above 1 / sqrt(window). With `back`, the factor that inverts it.
inline double rotation_factor(std::size_t window, bool back) {
    const int log2 = std::countr_zero(window);
    const double there = std::ldexp(1.0, -(log2 / 2));
    return back ? 1.0 / (static_cast<double>(window) * there) : there;
}

/// Rotates the whole windows of `values`, or rotates them back. An incomplete window stays.
inline std::vector<double> rotated(const std::vector<double>& values, std::size_t window, bool back) {
    std::vector<double> result = values;
    for (std::size_t begin = 0; begin + window <= values.size(); begin += window) {
        for (std::size_t row = 0; row != window; ++row) {
            double sum = 0;
            for (std::size_t column = 0; column != window; ++column) {
                const double x = values[begin + column];
                sum += rotation_sign(row, column) ? -x : x;
            }
            result[begin + row] = sum * rotation_factor(window, back);
        }
    }
    return result;
}

/// Transforms a window in float, to the bit: combines the transforms of its halves, in the documented order.
inline void rotate_window(float* values, std::size_t window) {
    if (window == 1) return;
    const std::size_t half = window / 2;
    rotate_window(values, half);
    rotate_window(values + half, half);
    for (std::size_t i = 0; i != half; ++i) {
        const float a = values[i];
        const float b = values[i + half];
        values[i] = static_cast<float>(static_cast<double>(a) + static_cast<double>(b));
        values[i + half] = static_cast<float>(static_cast<double>(a) - static_cast<double>(b));
    }
}
/// Rotates whole windows in float, to the bit.
inline std::vector<float> rotated(std::vector<float> values, std::size_t window, bool back) {
    for (std::size_t begin = 0; begin + window <= values.size(); begin += window) {
        rotate_window(values.data() + begin, window);
        for (std::size_t i = begin; i != begin + window; ++i) {
            const double scaled = static_cast<double>(values[i]) * rotation_factor(window, back);
            values[i] = scaled == 0.0 ? 0.0f : static_cast<float>(scaled);
        }
    }
    return values;
}

}  // namespace zeropp_test
