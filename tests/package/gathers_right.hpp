/// \file
/// What a consumer does with the library: one collective, and a look at its result.
#pragma once

#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <utility>
#include <vector>

static_assert(__cplusplus >= 202002L, "the targets of zeropp must ask for C++20");

/// Whether a gather of this rank's number, ten times, gives the numbers of all ranks. Collective.
template <class Transport>
bool gathers_right(Transport transport) {
    zeropp::communicator comm(zeropp::flat(transport.size()), std::move(transport));
    const std::vector<float> shard(10, static_cast<float>(comm.rank()));
    std::vector<float> full(10 * static_cast<std::size_t>(comm.size()));
    zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::block_integer<8, 64>{}, shard, full);
    for (std::size_t i = 0; i != full.size(); ++i) {
        const std::size_t rank = i / 10;
        const float error = full[i] - static_cast<float>(rank);
        if (error > 1e-3f || error < -1e-3f) return false;
    }
    return true;
}
