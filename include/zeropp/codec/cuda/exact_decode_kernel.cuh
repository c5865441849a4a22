#pragma once
/// \file
/// The kernel that reads messages of exact differences. A warp decodes a tile, block by block: each lane has a granule
/// of the block.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/exact_tile.cuh>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/instructions.cuh>
#include <zeropp/codec/exact.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/exact_differences.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// The bits of two elements, from their codes and old bits: from_exact_code of each.
__device__ inline std::uint32_t from_exact_codes(std::uint32_t codes, std::uint32_t old) {
    constexpr std::uint32_t highest = 0x8000u * each_half;
    const std::uint32_t step = (codes >> 1 & ~highest) ^ (codes & each_half) * 0xffffu;
    // Sums without the highest bits, which would be carried from one half to the other.
    const std::uint32_t key = ((old ^ signs_of_halves(old)) + (step & ~highest)) ^ ((old ^ step) & highest);
    return key ^ (signs_of_halves(key) & ~highest);
}

/// The payload of a tile: `words` words, in global memory that nothing writes meanwhile.
struct exact_payload {
    const std::uint32_t* from;
    std::uint32_t words;

    __device__ std::uint32_t bytes() const { return 4 * words; }
    /// Word w; 0 behind the end.
    __device__ std::uint32_t word(std::uint32_t w) const { return w < words ? load_word<true>(from + w) : 0; }
    __device__ int byte(std::uint32_t b) const {
        return load_word<true>(reinterpret_cast<const std::uint8_t*>(from) + b);
    }
    /// Bytes 2h and 2h + 1.
    __device__ std::uint32_t half_word(int h) const {
        return load_word<true>(reinterpret_cast<const std::uint16_t*>(from) + h);
    }
};

/// Function object of a kernel: decodes a message for each slot of `where` into the elements of `base`, which hold the
/// old elements. If the bytes of a tile are none, all its elements become NaN.
template <exact_element T, class Slices, class Base>
struct exact_decode_kernel {
    const std::byte* messages;
    std::size_t stride;
    Slices where;
    Base base;
    exact_layout layout{where.last_count(), where.last()};

    static constexpr int resident_blocks = exact_resident_blocks;
    /// Bits of a NaN, of either type.
    static constexpr std::uint16_t nan = 0x7fff;

    __device__ void operator()() const {
        for (int s = static_cast<int>(blockIdx.y); s < where.slots; s += static_cast<int>(gridDim.y)) {
            const std::byte* const message = messages + static_cast<std::size_t>(s) * stride;
            for_each_tile(layout.tiles, [&](std::size_t number) {
                const exact_tile tile(where, s, number);
                if (tile.size == 0) return;
                T* const slice =
                    into_global_memory(tensor_at(base, where.tensor(tile.i))) + tile.of.offset(where.in_memory(s));
                T* const to = slice + tile.first;
                exact_payload in{};
                const bool wrong = !find(message, number, in) || !decode(in, tile, slice);
                if (sum_of_warp(wrong ? 1u : 0u) == 0) return;
                // After the stores of other lanes.
                __syncwarp();
                for (int i = lane_of_warp(); i < tile.size; i += 32) to[i].bits = nan;
            });
        }
    }

private:
    /// Finds the payload of tile `tile`. Returns false if the index has wrong ends.
    __device__ bool find(const std::byte* message, std::size_t tile, exact_payload& in) const {
        const auto* const index = reinterpret_cast<const std::uint32_t*>(message);
        const std::size_t words = stride / exact_differences::word;
        if (words < layout.tiles) return false;
        const std::uint32_t begin = tile == 0 ? 0 : load_word<true>(index + tile - 1);
        const std::uint32_t end = load_word<true>(index + tile);
        in = {index + layout.tiles + begin, end - begin};
        return begin <= end && end <= words - layout.tiles;
    }

    /// Decodes a payload. Returns false, on one lane or more, if it is none of the tile. Calls on all lanes of a warp
    /// end together.
    __device__ static bool decode(const exact_payload& in, const exact_tile& tile, T* slice) {
        const bool aligned = reinterpret_cast<std::uintptr_t>(slice) % 16 == 0;
        const int blocks = tile.blocks();
        auto at = static_cast<std::uint32_t>(2 * blocks);
        // A payload has fewer words than the tile has elements, so that numbers of bits do not overflow.
        if (in.words > exact_differences::tile_size || in.bytes() < at) return false;
        const auto fetch = [&](int b) {
            const T* const from = slice + tile.granule(b) * granule_size;
            const int valid = tile.valid(b);
            return valid == granule_size ? load_whole_granule(from, aligned) : load_part_granule(from, valid);
        };
        bool right = true;
        raw_granule<T> next = fetch(0);
        for (int b = 0; b != blocks; ++b) {
            raw_granule<T> g = next;
            if (b + 1 != blocks) next = fetch(b + 1);
            const std::uint32_t header = in.half_word(b);
            const auto reach = static_cast<int>(header & 0xffu);
            const std::uint32_t exceptions = header >> 8;
            if (header == 0) continue;
            const bool whole = reach == exact_differences::whole;
            if (whole && exceptions != 0) return false;
            const int valid = tile.valid(b);
            const granule_exponents<T> exponents(g, valid);
            const auto bits_of = [&](int i) { return whole ? i < valid ? 16u : 0u : exponents.code_bits_at(i, reach); };
            const warp_scan sums(whole ? static_cast<std::uint32_t>(16 * valid) : exponents.code_bits_in(reach));
            const auto code_bytes = static_cast<std::uint32_t>(ceil_div(sums.total, 8));
            if (at + code_bytes + exceptions * exception_bytes > in.bytes()) return false;
            if (sums.total != 0) {
                std::uint32_t place = 8 * at + sums.before;
                std::uint32_t w = place / 32;
                std::uint32_t word = in.word(w);
                std::uint32_t ahead = in.word(w + 1);
                place %= 32;
#pragma unroll
                for (int k = 0; k != granule_size / 2; ++k) {
                    const std::uint32_t first = bits_of(2 * k);
                    const std::uint32_t second = bits_of(2 * k + 1);
                    const auto two =
                        static_cast<std::uint32_t>((word | static_cast<std::uint64_t>(ahead) << 32) >> place);
                    const std::uint32_t codes = (two & ((1u << first) - 1)) | (two >> first & ((1u << second) - 1))
                                                                                  << 16;
                    g.data[k] = whole ? codes : from_exact_codes(codes, g.data[k]);
                    place += first + second;
                    if (place >= 32) {
                        word = ahead;
                        ahead = in.word(++w + 1);
                        place -= 32;
                    }
                }
                T* const to = slice + tile.granule(b) * granule_size;
                if (valid == granule_size) {
                    store_whole_granule<true>(to, g, aligned);
                } else {
                    store_part_granule(to, g, valid);
                }
            }
            at += code_bytes;
            if (exceptions == 0) continue;
            // Their elements have been stored by other lanes.
            __syncwarp();
#pragma unroll 1
            for (auto k = static_cast<std::uint32_t>(lane_of_warp()); k < exceptions; k += 32) {
                const std::uint32_t from = at + k * exception_bytes;
                const int i = in.byte(from);
                const int before = k == 0 ? -1 : in.byte(from - exception_bytes);
                if (i <= before || i >= tile.block_size(b)) {
                    right = false;
                } else {
                    slice[tile.first + static_cast<std::size_t>(b * exact_tile::block + i)].bits =
                        static_cast<std::uint16_t>(in.byte(from + 1) | in.byte(from + 2) << 8);
                }
            }
            at += exceptions * exception_bytes;
        }
        return right && in.bytes() - at < exact_differences::word;
    }
};

}  // namespace zeropp::detail
