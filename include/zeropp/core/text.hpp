#pragma once
/// \file
/// Text with a fixed capacity, so that names never allocate.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace zeropp {

/// Text of up to `Capacity` characters. Longer text is cut; equality also compares a hash of the lost characters.
/// Trivially copyable, so ranks can send it as bytes.
template <std::size_t Capacity>
class text_in_place {
public:
    static constexpr std::size_t capacity = Capacity;
    static_assert(capacity < 256);

    constexpr text_in_place() = default;
    constexpr text_in_place(std::string_view text) { append(text); }
    constexpr text_in_place(const char* text) { append(std::string_view(text)); }
    template <std::size_t Other>
        requires(Other != Capacity)
    constexpr text_in_place(const text_in_place<Other>& text) {
        append(text);
    }

    /// Appends `text`. Characters beyond the capacity only change the hash.
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

    /// The text, cut to the capacity. Stays within the array even if another rank has sent a wrong size.
    constexpr operator std::string_view() const { return {characters_, size_ < capacity ? size_ : capacity}; }
    /// The text, cut to the capacity, as a std::string.
    std::string str() const { return std::string(std::string_view(*this)); }

    friend constexpr bool operator==(const text_in_place& a, const text_in_place& b) {
        return std::string_view(a) == std::string_view(b) && a.lost_ == b.lost_;
    }

private:
    template <std::size_t>
    friend class text_in_place;

    /// Adds a lost character, or the hash of other lost ones, to the FNV-1a hash of lost characters.
    constexpr text_in_place& lose(std::uint64_t what) {
        lost_ = ((lost_ == 0 ? 0xcbf29ce484222325 : lost_) ^ what) * 0x100000001b3;
        return *this;
    }

    char characters_[capacity] = {};
    unsigned char size_ = 0;
    std::uint64_t lost_ = 0;
};

/// Type of names and other short texts.
using short_text = text_in_place<95>;
/// Type of a text about a call's quantizers or options, which must be equal on all ranks. The capacity is larger than
/// any such text of the library.
using agreed_text = text_in_place<223>;

namespace detail {
/// `numbers` as text, such as "0, 1, 3".
[[gnu::cold]] inline std::string text_of(std::span<const int> numbers) {
    std::string text;
    for (const int n : numbers) text += (text.empty() ? "" : ", ") + std::to_string(n);
    return text;
}
}  // namespace detail

}  // namespace zeropp
