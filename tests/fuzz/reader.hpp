#pragma once
/// \file
/// How a fuzz target takes its parameters from the front of its input, and stops where something is wrong.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

namespace zeropp_test {

/// Takes numbers from the front of an input; zeros where it has ended.
class reader {
public:
    reader(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

    template <class Number>
    Number take() {
        Number number{};
        const std::size_t some = std::min(sizeof number, rest_.size());
        if (some != 0) std::memcpy(&number, rest_.data(), some);
        rest_ = rest_.subspan(some);
        return number;
    }

    /// A number from `low` to `high`.
    std::size_t take_between(std::size_t low, std::size_t high) {
        return low + take<std::uint16_t>() % (high - low + 1);
    }

    std::span<const std::uint8_t> rest() const { return rest_; }

private:
    std::span<const std::uint8_t> rest_;
};

/// Ends the program, which the fuzzer reports with its input, unless `met`.
inline void require(bool met, const char* what) {
    if (met) return;
    std::fprintf(stderr, "expected %s\n", what);
    std::abort();
}

}  // namespace zeropp_test
