#pragma once
/// \file
/// Short text held in place, so that naming things never allocates.

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace zeropp {

/// Text of up to `Capacity` characters. Longer text is cut, and a hash of the lost characters is kept: two texts are
/// equal only if they were equal before the cut. Trivially copyable, so it can travel between ranks.
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
            if (size_ < capacity) {
                characters_[size_++] = c;
            } else {
                lose(static_cast<unsigned char>(c));
            }
        }
        return *this;
    }
    template <std::size_t Other>
    constexpr text_in_place& append(const text_in_place<Other>& text) {
        append(std::string_view(text));
        return text.lost_ == 0 ? *this : lose(text.lost_);
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

    /// The characters that fit. Stays inside of the array whatever bytes a peer has sent as a text.
    constexpr operator std::string_view() const { return {characters_, size_ < capacity ? size_ : capacity}; }
    /// The same as a string.
    std::string str() const { return std::string(std::string_view(*this)); }

    friend constexpr bool operator==(const text_in_place& a, const text_in_place& b) {
        return std::string_view(a) == std::string_view(b) && a.lost_ == b.lost_;
    }

private:
    template <std::size_t>
    friend class text_in_place;

    /// FNV-1a.
    constexpr text_in_place& lose(std::uint64_t what) {
        lost_ = ((lost_ == 0 ? 0xcbf29ce484222325 : lost_) ^ what) * 0x100000001b3;
        return *this;
    }

    char characters_[capacity] = {};
    unsigned char size_ = 0;
    std::uint64_t lost_ = 0;
};

/// A name, or a few words.
using short_text = text_in_place<95>;
/// What ranks have to agree on in a call: longer than any of the library's says.
using agreed_text = text_in_place<223>;

}  // namespace zeropp
