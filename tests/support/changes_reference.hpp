#pragma once
/// \file
/// Messages of changed elements, made from their documented format without the library's code.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace zeropp_test {

/// The message of a tensor of n elements in `groups` groups of 256, with room for `room` changes. Keeps all changes.
template <class T>
std::vector<std::byte> changes_message(const T* after, const T* before, std::size_t n, std::size_t groups,
                                       std::size_t room) {
    std::vector<std::byte> counts, elements, places;
    const auto append = [](std::vector<std::byte>& to, const void* from, std::size_t bytes) {
        to.resize(to.size() + bytes);
        std::memcpy(to.data() + to.size() - bytes, from, bytes);
    };
    for (std::size_t group = 0; group != groups; ++group) {
        std::uint16_t count = 0;
        for (unsigned place = 0; place != 256; ++place) {
            const std::size_t i = 256 * group + place;
            if (i >= n || std::memcmp(after + i, before + i, sizeof(T)) == 0) continue;
            ++count;
            append(elements, after + i, sizeof(T));
            places.push_back(static_cast<std::byte>(place));
        }
        append(counts, &count, sizeof count);
    }
    elements.resize(room * sizeof(T));
    places.resize(room);
    std::vector<std::byte> message;
    for (const auto& part : {counts, elements, places}) {
        message.insert(message.end(), part.begin(), part.end());
        message.resize((message.size() + 15) / 16 * 16);
    }
    return message;
}

}  // namespace zeropp_test
