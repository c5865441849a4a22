#pragma once
/// \file
/// Scales of whole messages: the largest finite magnitude of a message's values, found before it is encoded.

#include <zeropp/codec/cuda/granule_codec.cuh>
#include <zeropp/codec/cuda/message_values.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// Sets the scale of each message to 0. find_scale_kernel merges magnitudes into it.
template <message_scaled_quantizer Q, class Slices = slices>
struct clear_scale_kernel {
    Slices where;
    std::byte* messages;

    static constexpr int resident_blocks = 2;

    /// Number of tiles for all slots together.
    static constexpr std::size_t tiles(int slots) { return ceil_div(static_cast<std::size_t>(slots), kernel_threads); }

    __device__ void operator()() const {
        const wire_layout<Q> layout(where.last_count(), where.last());
        const std::size_t slots = static_cast<std::size_t>(where.slots);
        for (std::size_t s = blockIdx.x * std::size_t{kernel_threads} + threadIdx.x; s < slots;
             s += gridDim.x * std::size_t{kernel_threads}) {
            *reinterpret_cast<std::uint32_t*>(messages + s * layout.bytes + layout.scale_offset) = 0;
        }
    }
};

/// Merges the magnitudes of each message's values into its scale.
template <message_scaled_quantizer Q, class Source, class Residuals, class Slices = slices>
struct find_scale_kernel {
    Source source;
    Slices where;
    std::byte* messages;
    Residuals residuals;

    using values = message_values<Q, Source, Residuals>;

    static constexpr int granules_per_thread = values::in_flight;
    static constexpr std::size_t tile_granules = std::size_t{granules_per_thread} * kernel_threads;
    static constexpr int resident_blocks = 2;

    /// Number of tiles in a slot. Each tensor of a list starts with another thread block, which keeps all of them busy.
    static std::size_t tiles(const Slices& w) {
        return ceil_div(w.last().elements + w.last_count(), tile_granules * granule_size);
    }

    __device__ void operator()() const {
        const wire_layout<Q> layout(where.last_count(), where.last());
        for (int s = static_cast<int>(blockIdx.y); s < where.slots; s += static_cast<int>(gridDim.y)) {
            magnitude largest[1];
            for (std::size_t i = 0; i != where.sections(); ++i) {
                const section of = where.at(i);
                const auto from = values::open(source, residuals, where, of, i, s);
                const std::size_t size = of.size(where.rank(s));
                for (std::size_t first = (blockIdx.x + i) % gridDim.x * tile_granules; first * granule_size < size;
                     first += gridDim.x * tile_granules) {
                    if ((first + tile_granules) * granule_size <= size) {
                        take<granules_per_thread, true>(from, size, first, largest[0]);
                    } else {
#pragma unroll 1
                        for (std::size_t r = 0; r != granules_per_thread; ++r) {
                            take<1, false>(from, size, first + r * kernel_threads, largest[0]);
                        }
                    }
                }
            }
            merge_stats<kernel_threads>(largest);
            if (threadIdx.x == 0) {
                atomicMax(reinterpret_cast<std::uint32_t*>(messages + static_cast<std::size_t>(s) * layout.bytes +
                                                           layout.scale_offset),
                          largest[0].bits);
            }
        }
    }

private:
    struct magnitude {
        std::uint32_t bits = 0;
        __device__ void merge(const magnitude& other) { bits = other.bits > bits ? other.bits : bits; }
    };

    template <int N, bool Whole, class Cursor>
    __device__ void take(const Cursor& from, std::size_t size, std::size_t first, magnitude& largest) const {
        const auto granule = [=](std::size_t r) { return first + threadIdx.x + r * kernel_threads; };
        typename values::fragment fragments[std::size_t{N}];
        values::template fetch<Whole, kernel_threads, 1, 1>(source, residuals, from, size, granule, fragments);
#pragma unroll
        for (std::size_t r = 0; r != N; ++r) {
            const int valid = Whole ? granule_size : valid_elements(size, granule(r));
            float x[granule_size];
            values::of(fragments[r], x);
#pragma unroll
            for (int i = 0; i != granule_size; ++i) {
                if (Whole || i < valid) largest.bits = take_magnitude(largest.bits, x[i]);
            }
        }
    }
};

}  // namespace zeropp::detail
