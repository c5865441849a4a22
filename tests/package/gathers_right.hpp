/// \file
/// What a consumer does with the library: one gather, and a look at its result.
#pragma once

#include <zeropp/execution/host.hpp>

#include <cstddef>
#include <vector>

static_assert(__cplusplus >= 202002L, "the targets of zeropp must ask for C++20");

/// Whether a gather of this rank's number gives the numbers of all ranks. Collective.
template <class Transport>
bool gathers_right(Transport transport) {
    const std::byte mine{static_cast<unsigned char>(transport.rank() + 5)};
    std::vector<std::byte> all(static_cast<std::size_t>(transport.size()));
    transport.all_gather(zeropp::host(), &mine, all.data(), 1);
    for (std::size_t rank = 0; rank != all.size(); ++rank) {
        if (std::to_integer<std::size_t>(all[rank]) != rank + 5) return false;
    }
    return true;
}
