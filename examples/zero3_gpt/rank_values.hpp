#pragma once

#include "device.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace zero3_gpt {

/// A few numbers of each rank, made known to all ranks.
template <class Device>
class rank_values {
public:
    static constexpr std::size_t most = 3;  // for each rank

    /// For at most `ranks` ranks.
    explicit rank_values(int ranks) : memory_(most * (static_cast<std::size_t>(ranks) + 1)) {}

    /// Collective over `ranks`: their values, by rank. Waits for `queue`.
    template <class Transport, std::size_t N>
    std::vector<std::array<double, N>> all(const Device& device, const typename Device::queue& queue, Transport& ranks,
                                           const std::array<double, N>& values) {
        static_assert(N <= most);
        const auto size = static_cast<std::size_t>(ranks.size());
        double* const own = memory_.data() + size * N;
        device.upload(own, std::span<const double>(values));
        queue.exec().wait(device.record());
        ranks.all_gather(queue.exec(), reinterpret_cast<const std::byte*>(own),
                         reinterpret_cast<std::byte*>(memory_.data()), sizeof(values));
        device.wait(queue.exec().record());
        std::vector<std::array<double, N>> of_ranks(size);
        device.download(std::span(of_ranks.front().data(), size * N), memory_.data());
        return of_ranks;
    }

    /// Collective over `ranks`: the sum of their values, in rank order, so that all ranks get equal bits.
    template <class Transport>
    double sum(const Device& device, const typename Device::queue& queue, Transport& ranks, double value) {
        double sum = 0;
        for (const auto& [v] : all(device, queue, ranks, std::array{value})) sum += v;
        return sum;
    }

private:
    array<double, typename Device::space> memory_;  // of all ranks, then of this one
};

}  // namespace zero3_gpt
