#pragma once
/// \file
/// The first difference of two arrays, in words.

#include <zeropp/core/element.hpp>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace zeropp_test {

/// The first difference of two arrays, all NaN being one; empty if there is none.
template <class T>
std::string difference(const std::vector<T>& given, const std::vector<T>& expected) {
    if (given.size() != expected.size()) {
        return std::to_string(given.size()) + " numbers, expected " + std::to_string(expected.size());
    }
    if (given.empty() || std::memcmp(given.data(), expected.data(), given.size() * sizeof(T)) == 0) return {};
    for (std::size_t i = 0; i != given.size(); ++i) {
        if (std::memcmp(&given[i], &expected[i], sizeof(T)) == 0) continue;
        double g = 0;
        double e = 0;
        if constexpr (zeropp::element<T>) {
            g = static_cast<double>(zeropp::element_traits<T>::to_float(given[i]));
            e = static_cast<double>(zeropp::element_traits<T>::to_float(expected[i]));
            if (g != g && e != e) continue;
        } else {
            g = static_cast<double>(given[i]);
            e = static_cast<double>(expected[i]);
        }
        char text[128];
        std::snprintf(text, sizeof text, "number %zu of %zu is %a, expected %a", i, given.size(), g, e);
        return text;
    }
    return {};
}

}  // namespace zeropp_test
