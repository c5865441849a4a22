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

/// Text of up to so many characters; what does not fit is cut. Trivially copyable, so it can travel between ranks.
template <std::size_t Capacity>
class text_in_place {
public:
    static constexpr std::size_t capacity = Capacity;
    static_assert(capacity < 256);

    constexpr text_in_place() = default;
    constexpr text_in_place(std::string_view text) { append(text); }
    constexpr text_in_place(const char* text) { append(std::string_view(text)); }
    template <std::size_t Other>
    requires(Other != Capacity) constexpr text_in_place(const text_in_place<Other>& text) { append(text); }

    /// Appends text, as far as it fits.
    constexpr text_in_place& append(std::string_view text) {
        for (const char c : text) {
            if (size_ < capacity) characters_[size_++] = c;
        }
        return *this;
    }

    /// Appends a non-negative integer in decimal.
    template <std::integral Integer>
    constexpr text_in_place& append(Integer number) {
        if (number >= 10) append(static_cast<Integer>(number / 10));
        const char digit = static_cast<char>('0' + number % 10);
        return append(std::string_view(&digit, 1));
    }

    /// Appends a number in the fewest digits that tell it from any other float.
    text_in_place& append(float number) {
        char digits[16];
        const auto written = std::to_chars(std::begin(digits), std::end(digits), number);
        return append(std::string_view(digits, static_cast<std::size_t>(written.ptr - digits)));
    }

    constexpr operator std::string_view() const { return {characters_, size_}; }
    /// The same as a string.
    std::string str() const { return std::string(std::string_view(*this)); }

    friend constexpr bool operator==(const text_in_place& a, const text_in_place& b) {
        return std::string_view(a) == std::string_view(b);
    }

private:
    char characters_[capacity] = {};
    unsigned char size_ = 0;
};

/// A name, or a few words.
using short_text = text_in_place<95>;
/// What ranks have to agree on in a call: longer than any of the library's says.
using agreed_text = text_in_place<223>;

}  // namespace zeropp
