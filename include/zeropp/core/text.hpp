#pragma once
/// \file
/// Short text held in place, so that naming things never allocates.

#include <charconv>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

namespace zeropp {

/// Text of up to 223 characters, more than any call of the library's has to agree on; what does not fit is cut. Trivially copyable, so it can travel between ranks.
class short_text {
public:
    static constexpr std::size_t capacity = 223;

    constexpr short_text() = default;
    constexpr short_text(std::string_view text) { append(text); }
    constexpr short_text(const char* text) { append(std::string_view(text)); }

    /// Appends text, as far as it fits.
    constexpr short_text& append(std::string_view text) {
        for (const char c : text) {
            if (size_ < capacity) characters_[size_++] = c;
        }
        return *this;
    }

    /// Appends a non-negative integer in decimal.
    template <std::integral Integer>
    constexpr short_text& append(Integer number) {
        if (number >= 10) append(static_cast<Integer>(number / 10));
        const char digit = static_cast<char>('0' + number % 10);
        return append(std::string_view(&digit, 1));
    }

    /// Appends a number in the fewest digits that tell it from any other float.
    short_text& append(float number) {
        char digits[16];
        const auto written = std::to_chars(std::begin(digits), std::end(digits), number);
        return append(std::string_view(digits, static_cast<std::size_t>(written.ptr - digits)));
    }

    constexpr operator std::string_view() const { return {characters_, size_}; }
    /// The same as a string.
    std::string str() const { return std::string(std::string_view(*this)); }

    friend constexpr bool operator==(const short_text& a, const short_text& b) {
        return std::string_view(a) == std::string_view(b);
    }

private:
    char characters_[capacity] = {};
    unsigned char size_ = 0;
};

}  // namespace zeropp
