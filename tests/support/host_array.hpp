#pragma once
/// \file
/// An array in host memory with the interface of the device arrays of tests, for checks that run on both.

#include <zeropp/core/view.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace zeropp_test {

template <class T>
class host_array {
public:
    explicit host_array(std::size_t n) : values_(n) {}
    explicit host_array(std::vector<T> values) : values_(std::move(values)) {}
    zeropp::host_view<T> view() { return {values_.data(), values_.size()}; }
    std::vector<T> read() const { return values_; }
    void write(const std::vector<T>& values) { std::copy(values.begin(), values.end(), values_.begin()); }
    bool intact() const { return true; }

private:
    std::vector<T> values_;
};

}  // namespace zeropp_test
