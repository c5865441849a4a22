#pragma once
/// \file
/// A plain reader of messages of exact differences.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace zeropp_test {

using bits_of_elements = std::vector<std::uint16_t>;

/// Reads a message of exact differences bit by bit, as the messages' documentation says.
class exact_reader {
public:
    explicit exact_reader(std::span<const std::byte> message) : message_(message) {}

    /// Decodes the tiles from `tile` on, of `old.size()` elements with a mantissa of `mantissa` bits, in a message of
    /// `tiles` tiles. Returns none if the bytes are no message.
    std::optional<bits_of_elements> elements(std::size_t tile, std::size_t tiles, const bits_of_elements& old,
                                             int mantissa) {
        if (message_.size() / 4 < tiles) return std::nullopt;
        bits_of_elements now(old);
        for (std::size_t begin = 0; begin < old.size(); begin += 4096, ++tile) {
            const std::size_t n = std::min<std::size_t>(4096, old.size() - begin);
            const std::size_t first = tile == 0 ? 0 : word(tile - 1), last = word(tile);
            if (first > last || last > message_.size() / 4 - tiles) return std::nullopt;
            at_ = 32 * (tiles + first);
            end_ = 32 * (tiles + last);
            std::vector<std::uint32_t> headers;
            for (std::size_t b = 0; b < 2 * n; b += 256) headers.push_back(take(8));
            if (headers.size() % 2 != 0) headers.push_back(take(8));
            for (std::size_t b = 0; right_ && b < n; b += 256) {
                block(headers[b / 128], headers[b / 128 + 1], begin + b, std::min<std::size_t>(256, n - b), mantissa,
                      now);
            }
            if (!right_ || (end_ - at_) / 8 >= 4) return std::nullopt;
            while (at_ != end_) padded_with_zeros_ = take(8) == 0 && padded_with_zeros_;
        }
        return now;
    }

    /// Whether all bytes between blocks and the ends of tiles were zero.
    bool padded_with_zeros() const { return padded_with_zeros_; }

    std::uint32_t word(std::size_t i) const {
        std::uint32_t value = 0;
        std::memcpy(&value, message_.data() + 4 * i, 4);
        return value;
    }

private:
    void block(std::uint32_t reach, std::uint32_t exceptions, std::size_t begin, std::size_t n, int mantissa,
               bits_of_elements& now) {
        for (std::size_t i = begin; i != begin + n; ++i) {
            if (reach == 255) {
                now[i] = static_cast<std::uint16_t>(take(16));
                continue;
            }
            const int old = now[i];
            const int exponent = (old & 0x7fff) >> mantissa;
            const std::uint32_t code = take(std::clamp(static_cast<int>(reach) - exponent, 0, 14));
            // Elements in the order of values: negative ones count down from -1.
            const int place = old < 0x8000 ? old : 0x7fff - old;
            const int step = code % 2 == 0 ? static_cast<int>(code / 2) : -static_cast<int>(code / 2) - 1;
            const auto moved = static_cast<std::int16_t>(place + step);
            now[i] = static_cast<std::uint16_t>(moved >= 0 ? moved : 0x7fff - moved);
        }
        at_ = (at_ + 7) / 8 * 8;
        if (reach == 255 && exceptions != 0) right_ = false;
        std::size_t least = 0;
        for (std::uint32_t k = 0; right_ && k != exceptions; ++k) {
            const std::size_t i = take(8);
            if (i < least || i >= n) right_ = false;
            if (right_) now[begin + i] = static_cast<std::uint16_t>(take(16));
            least = i + 1;
        }
    }
    std::uint32_t take(int bits) {
        if (end_ - at_ < static_cast<std::size_t>(bits)) right_ = false;
        std::uint32_t value = 0;
        for (int b = 0; right_ && b != bits; ++b, ++at_) {
            value |= (static_cast<std::uint32_t>(message_[at_ / 8]) >> at_ % 8 & 1u) << b;
        }
        return value;
    }

    std::span<const std::byte> message_;
    std::size_t at_ = 0;
    std::size_t end_ = 0;
    bool right_ = true;
    bool padded_with_zeros_ = true;
};

}  // namespace zeropp_test
