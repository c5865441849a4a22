#pragma once
/// \file
/// Buffers that show writes outside of them, and elements that were not written.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace zeropp_test {

/// `size` elements filled with a byte pattern, between guards of that pattern; `shift` bytes, fewer than 64, behind a
/// multiple of 64. No T is constructed in the memory, as in a framework's buffers.
template <class T>
class guarded {
public:
    explicit guarded(std::size_t size, std::uint8_t pattern = 0xa5, std::size_t shift = 0)
        : size_(size), pattern_(pattern), memory_(size * sizeof(T) + 4 * guard, pattern) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + guard;
        start_ = guard + (64 - address % 64) % 64 + shift;
    }
    guarded(const std::vector<T>& values, std::uint8_t pattern) : guarded(values.size(), pattern) {
        if (size_ != 0) std::memcpy(data(), values.data(), size_ * sizeof(T));
    }
    guarded(const guarded&) = delete;
    guarded& operator=(const guarded&) = delete;

    T* data() { return reinterpret_cast<T*>(memory_.data() + start_); }
    std::size_t size() const { return size_; }
    std::vector<T> values() {
        std::vector<T> copy(size_);
        if (size_ != 0) std::memcpy(copy.data(), data(), size_ * sizeof(T));
        return copy;
    }

    /// True if the memory around the elements still holds the pattern.
    bool intact() const {
        const auto end = start_ + size_ * sizeof(T);
        const auto is_pattern = [&](std::uint8_t b) { return b == pattern_; };
        return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(start_), is_pattern) &&
               std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(end), memory_.end(), is_pattern);
    }

    /// True if nothing was written at all.
    bool untouched() const {
        return std::all_of(memory_.begin(), memory_.end(), [&](std::uint8_t b) { return b == pattern_; });
    }

private:
    static constexpr std::size_t guard = 64;

    std::size_t size_;
    std::uint8_t pattern_;
    std::vector<std::uint8_t> memory_;
    std::size_t start_;
};

}  // namespace zeropp_test
