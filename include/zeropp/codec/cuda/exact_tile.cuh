#pragma once
/// \file
/// Tiles of messages of exact differences, of which each warp takes one at a time, and exponents of old elements.

#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/instructions.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/codec/exact.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/layout/slices.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// Number of bytes of an exception.
inline constexpr std::uint32_t exception_bytes = exact_differences::exception_bytes;

/// Number of thread blocks for which a multiprocessor has registers.
inline constexpr int exact_resident_blocks = 3;

/// Number of thread blocks that have a warp for each of `tiles` tiles.
inline std::size_t blocks_of_tiles(std::size_t tiles) { return ceil_div(tiles, std::size_t{kernel_warps}); }

/// Calls use(tile) for each tile below `tiles` that the calling warp takes.
template <class Use>
__device__ void for_each_tile(std::size_t tiles, Use use) {
    for (std::size_t tile = std::size_t{blockIdx.x} * kernel_warps + static_cast<std::size_t>(warp_of_block());
         tile < tiles; tile += std::size_t{gridDim.x} * kernel_warps) {
        use(tile);
    }
}

/// A tile of a slot's message: elements of one tensor, or none.
struct exact_tile {
    static constexpr int block = static_cast<int>(exact_differences::block_size);
    static constexpr std::size_t tile_size = exact_differences::tile_size;

    /// Index of the tensor among those in the message.
    std::size_t i;
    section of;
    /// Index in the section of the tile's first element.
    std::size_t first;
    /// Number of elements.
    int size;

    template <class Slices>
    __device__ exact_tile(const Slices& where, int s, std::size_t tile)
        : i(where.section_of(tile, tile_size)), of(where.at(i)),
          first((tile - of.place.blocks(tile_size)) * tile_size) {
        const std::size_t n = of.size(where.rank(s));
        size = static_cast<int>(n <= first ? 0 : n - first < tile_size ? n - first : tile_size);
    }

    __device__ int blocks() const {
        return static_cast<int>(ceil_div(static_cast<std::size_t>(size), std::size_t{block}));
    }
    /// Number of elements of block b.
    __device__ int block_size(int b) const { return size - b * block < block ? size - b * block : block; }
    /// Number of elements of this lane's granule of block b.
    __device__ int valid(int b) const {
        const int n = size - b * block - lane_of_warp() * granule_size;
        return n < 0 ? 0 : n < granule_size ? n : granule_size;
    }
    /// Index in the section of this lane's granule of block b.
    __device__ std::size_t granule(int b) const {
        return first / granule_size + static_cast<std::size_t>(b * (block / granule_size) + lane_of_warp());
    }
};

/// A 1 in each half of a word. Factor that makes a number of 16 bits a pair of it.
inline constexpr std::uint32_t each_half = 0x00010001u;

/// Exponent fields of a granule's old elements, in pairs. An element that the granule does not have counts as 255, for
/// which codes have no bits.
template <exact_element T>
struct granule_exponents {
    std::uint32_t pairs[granule_size / 2];

    __device__ granule_exponents(const raw_granule<T>& old, int valid) {
#pragma unroll
        for (int k = 0; k != granule_size / 2; ++k) {
            pairs[k] = old.data[k] >> exponent_shift<T> & (0x7fffu >> exponent_shift<T>)*each_half;
        }
        if (valid == granule_size) return;
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            if (i >= valid) pairs[i / 2] |= 0xffu << i % 2 * 16;
        }
    }

    /// Number of bits of code i, in a block of reach `reach`.
    __device__ std::uint32_t code_bits_at(int i, int reach) const {
        return static_cast<std::uint32_t>(code_bits(reach, static_cast<int>(pairs[i / 2] >> i % 2 * 16 & 0xffu)));
    }
    /// Number of bits of all codes, in a block of reach `reach`.
    __device__ std::uint32_t code_bits_in(int reach) const {
        std::uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i != granule_size; ++i) bits += code_bits_at(i, reach);
        return bits;
    }
};

}  // namespace zeropp::detail
