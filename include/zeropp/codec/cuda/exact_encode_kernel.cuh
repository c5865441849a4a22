#pragma once
/// \file
/// The kernels that write messages of exact differences. Bytes equal the host codec's.
///
/// A warp encodes a tile, block by block: each lane has a granule of the block, in pairs of elements. Codes and
/// exceptions are put together in shared memory. From there, whole words are copied to the tile's room. A second kernel
/// of one thread block finds the ends of all payloads, and a third puts these together.

#include <zeropp/codec/cuda/exact_tile.cuh>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/instructions.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/codec/exact.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/exact_differences.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

/// The codes of two elements, from the bits of both and their old bits: exact_code of each.
__device__ inline std::uint32_t exact_codes(std::uint32_t bits, std::uint32_t old) {
    constexpr std::uint32_t highest = 0x8000u * each_half;
    // Keys without their highest bits, which would be carried from one half to the other.
    const std::uint32_t key = bits ^ signs_of_halves(bits);
    const std::uint32_t old_key = old ^ signs_of_halves(old);
    const std::uint32_t step = ((key | highest) - old_key) ^ (~(bits ^ old) & highest);
    return (step << 1 & ~each_half) ^ signs_of_halves(step);
}

/// Added to each of `needed_reaches`.
inline constexpr int above_needed = 126;
/// For two elements, from their codes and old exponent fields: needed_reach of each plus `above_needed`, or 0 if an
/// element has not changed. Where needed_reach is 255, at least 255 + `above_needed`.
__device__ inline std::uint32_t needed_reaches(std::uint32_t codes, std::uint32_t exponents) {
    const std::uint32_t low = float_bits(static_cast<float>(static_cast<int>(codes & 0xffffu)));
    const std::uint32_t high = float_bits(static_cast<float>(static_cast<int>(codes >> 16)));
    // 0, or 126 more than the number of bits: 127 to 142.
    const std::uint32_t lengths = low >> 23 | high >> 23 << 16;
    const std::uint32_t changed = signs_of_halves((lengths + each_half) << 8);
    // 256 if a code has more than 14 bits.
    const std::uint32_t beyond =
        (lengths + (256 - above_needed - exact_differences::most_bits - 1) * each_half) & 256 * each_half;
    return ((exponents + lengths) & changed) + beyond;
}

/// Of four pairs of numbers below 2^15, those that are at least `least`: bit 12 + i / 2 + i % 2 * 16 for number i.
__device__ inline std::uint32_t at_least(const std::uint32_t (&pairs)[granule_size / 2], int least) {
    constexpr std::uint32_t highest = 0x8000u * each_half;
    std::uint32_t found = 0;
#pragma unroll
    for (const std::uint32_t two : pairs) {
        found = found >> 1 | ((two + static_cast<std::uint32_t>(0x8000 - least) * each_half) & highest);
    }
    return found;
}

/// Elements of a granule, rounded to T.
template <exact_element T, class S>
__device__ raw_granule<T> rounded_granule(const raw_granule<S>& from) {
    if constexpr (std::is_same_v<S, T>) {
        return from;
    } else {
        float x[granule_size];
        from.to_floats(x);
        return raw_granule<T>::from_floats(x);
    }
}

/// The end of a tile's payload, which a warp puts together in shared memory: bytes that do not fill a word of global
/// memory yet. The words behind them are zeros.
struct exact_staging {
    /// Number of words for a block, which may begin in the middle of a word.
    static constexpr std::size_t words = exact_differences::block_size / 2 + 2;

    std::uint32_t* staged;
    /// Where the first word of `staged` belongs.
    std::uint32_t* to;
    /// Number of bytes of `staged`.
    std::uint32_t bytes;

    /// Puts the bits of `some` at bit `at` of `staged`. All these bits must be zeros, or be put by other lanes.
    __device__ void put(std::uint32_t at, std::uint32_t some) const {
        const std::uint32_t low = some << at % 32;
        const std::uint32_t high = funnel_shift(some, 0, at % 32);
        if (low != 0) atomicOr(staged + at / 32, low);
        if (high != 0) atomicOr(staged + at / 32 + 1, high);
    }

    /// Copies whole words to global memory, after `more` bytes have been put by all lanes.
    __device__ void move(std::uint32_t more) {
        bytes += more;
        const std::uint32_t whole = bytes / 4;
        __syncwarp();
#pragma unroll 1
        for (auto w = static_cast<std::uint32_t>(lane_of_warp()); w < whole; w += 32) {
            to[w] = staged[w];
            staged[w] = 0;
        }
        if (lane_of_warp() == 0 && whole != 0) {
            staged[0] = staged[whole];
            staged[whole] = 0;
        }
        __syncwarp();
        to += whole;
        bytes %= 4;
    }
};

/// Function object of a kernel: encodes the only slot of `where`, each tile at its place in `room`, and writes the
/// number of words of each tile's payload into the index. `Source` is a difference_source.
template <exact_element T, class Source, class Slices>
struct exact_encode_kernel {
    Source source;
    Slices where;
    std::byte* room;
    exact_layout layout{where.last_count(), where.last()};

    static constexpr int resident_blocks = exact_resident_blocks;

    __device__ void operator()() const {
        __shared__ std::uint32_t shared[std::size_t{kernel_warps}][exact_staging::words];
        std::uint32_t* const staged = shared[warp_of_block()];
        for (auto w = static_cast<std::size_t>(lane_of_warp()); w < exact_staging::words; w += 32) staged[w] = 0;
        __syncwarp();
        for_each_tile(layout.tiles, [&](std::size_t tile) {
            auto* const index = reinterpret_cast<std::uint32_t*>(into_global_memory(room));
            const std::uint32_t words = encode(exact_tile(where, 0, tile), index + layout.tiles, staged);
            if (lane_of_warp() == 0) index[tile] = words;
        });
    }

private:
    /// New and old elements of a granule.
    using granules = typename Source::raw;

    /// Encodes a tile into its room among `payloads`. Returns the number of words.
    __device__ std::uint32_t encode(const exact_tile& tile, std::uint32_t* payloads, std::uint32_t* staged) const {
        if (tile.size == 0) return 0;
        std::uint32_t* const payload = payloads + exact_layout::room_at(tile.of.place, tile.first);
        const auto from = source.open(where, tile.of, tile.i, 0);
        const auto fetch = [&](int b) {
            return granules{source.tensor.fragment_part(from.of, tile.granule(b), tile.valid(b)),
                            source.base.fragment_part(from.less, tile.granule(b), tile.valid(b))};
        };
        const int blocks = tile.blocks();
        exact_staging out{staged, payload + blocks / 2, static_cast<std::uint32_t>(blocks % 2 * 2)};
        int guess = exact_differences::whole / 2;
        std::uint32_t header = 0;  // of the block with the lane's number
        granules next = fetch(0);
        for (int b = 0; b != blocks; ++b) {
            const granules g = next;
            if (b + 1 != blocks) next = fetch(b + 1);
            const std::uint32_t of_block =
                encode_block(rounded_granule<T>(g.of), g.less, tile.valid(b), tile.block_size(b), guess, out);
            if (lane_of_warp() == b) header = of_block;
        }
        if (lane_of_warp() == 0 && out.bytes != 0) {
            *out.to = staged[0];
            staged[0] = 0;
        }
        // The last header may share a word with the first block.
        __syncwarp();
        if (lane_of_warp() < blocks) {
            reinterpret_cast<std::uint16_t*>(payload)[lane_of_warp()] = static_cast<std::uint16_t>(header);
        }
        return static_cast<std::uint32_t>(out.to - payload) + (out.bytes != 0 ? 1u : 0u);
    }

    /// Encodes a block of `size` elements, of which this lane has `valid` in `now` and their old ones in `old`. `guess`
    /// is a reach to begin with, and becomes the block's. Returns the header.
    __device__ static std::uint32_t encode_block(const raw_granule<T>& now, const raw_granule<T>& old, int valid,
                                                 int size, int& guess, exact_staging& out) {
        const granule_exponents<T> exponents(old, valid);
        std::uint32_t codes[granule_size / 2];
        std::uint32_t needs[granule_size / 2];
#pragma unroll
        for (int k = 0; k != granule_size / 2; ++k) {
            codes[k] = exact_codes(now.data[k], old.data[k]);
            needs[k] = needed_reaches(codes[k], exponents.pairs[k]);
        }
        const auto exceptions_in = [&](int reach) { return at_least(needs, reach + 1 + above_needed); };
        const auto changed = static_cast<int>(sum_of_warp(count_bits(at_least(needs, 1))));
        if (changed == 0) return 0;
        reach_search search{guess};
        while (!search.done()) {
            const std::uint32_t counts = sum_of_warp(count_bits(exceptions_in(search.reach)) |
                                                     count_bits(at_least(exponents.pairs, search.reach)) << 16);
            search.take(reaches(static_cast<int>(counts & 0xffffu), changed,
                                exact_tile::block - static_cast<int>(counts >> 16)));
        }
        const int reach = search.enough;
        guess = reach == exact_differences::whole ? reach - 1 : reach;

        const std::uint32_t exceptions = exceptions_in(reach);
        // Bits of codes, and exceptions from bit 16 on.
        const warp_scan sums(exponents.code_bits_in(reach) | count_bits(exceptions) << 16);
        const auto code_bytes = static_cast<std::uint32_t>(ceil_div(sums.total & 0xffffu, 8));
        const std::uint32_t all_exceptions = sums.total >> 16;
        const std::uint32_t bytes = code_bytes + all_exceptions * exception_bytes;
        std::uint32_t at = 8 * out.bytes;
        const auto lane = static_cast<std::uint32_t>(lane_of_warp());
        if (reach == exact_differences::whole || bytes >= 2 * static_cast<std::uint32_t>(size)) {
#pragma unroll
            for (std::uint32_t k = 0; k != granule_size / 2; ++k) {
                out.put(at + lane * granule_size * 16 + 32 * k, now.data[k]);
            }
            out.move(2 * static_cast<std::uint32_t>(size));
            return exact_differences::whole;
        }
        at += sums.before & 0xffffu;
        std::uint32_t* word = out.staged + at / 32;
        std::uint32_t some = 0;  // bits of `word`
        at %= 32;
#pragma unroll
        for (int k = 0; k != granule_size / 2; ++k) {
            const std::uint32_t first = exponents.code_bits_at(2 * k, reach);
            const std::uint32_t low = (exceptions >> (12 + k) & 1u) != 0 ? 0 : codes[k] & 0xffffu;
            const std::uint32_t high = (exceptions >> (28 + k) & 1u) != 0 ? 0 : codes[k] >> 16;
            const std::uint32_t two = low | high << first;
            some |= two << at;
            const std::uint32_t end = at + first + exponents.code_bits_at(2 * k + 1, reach);
            if (end >= 32) {
                atomicOr(word++, some);
                some = funnel_shift(two, 0, at);
            }
            at = end % 32;
        }
        if (some != 0) atomicOr(word, some);
        if (all_exceptions != 0) {
            // Other lanes have put codes into these words.
            __syncwarp();
            auto* to = reinterpret_cast<unsigned char*>(out.staged) + out.bytes + code_bytes +
                       (sums.before >> 16) * exception_bytes;
#pragma unroll
            for (unsigned i = 0; i != granule_size; ++i) {
                if ((exceptions >> (12 + i / 2 + i % 2 * 16) & 1u) == 0) continue;
                const std::uint32_t element = now.data[i / 2] >> i % 2 * 16;
                to[0] = static_cast<unsigned char>(lane * granule_size + i);
                to[1] = static_cast<unsigned char>(element);
                to[2] = static_cast<unsigned char>(element >> 8);
                to += exception_bytes;
            }
        }
        out.move(bytes);
        return static_cast<std::uint32_t>(reach) | all_exceptions << 8;
    }
};

/// Function object of a kernel of one thread block: replaces numbers of words in the index of `room` by the ends of
/// payloads, and sets `size` to the number of bytes of the message.
struct exact_ends_kernel {
    std::byte* room;
    std::size_t tiles;
    std::uint64_t* size;

    static constexpr int resident_blocks = 1;
    /// Number of words that a thread takes at a time.
    static constexpr std::size_t run = 8;

    __device__ void operator()() const {
        __shared__ std::uint32_t of_warps[std::size_t{kernel_warps}];
        auto* const index = reinterpret_cast<std::uint32_t*>(room);
        std::uint32_t end = 0;
        for (std::size_t first = 0; first < tiles; first += run * kernel_threads) {
            const std::size_t mine = first + threadIdx.x * run;
            std::uint32_t ends[run];
            std::uint32_t words = 0;
#pragma unroll
            for (std::size_t k = 0; k != run; ++k) ends[k] = mine + k < tiles ? index[mine + k] : 0;
#pragma unroll
            for (std::size_t k = 0; k != run; ++k) ends[k] = words += ends[k];
            const warp_scan sums(words);
            if (lane_of_warp() == 0) of_warps[warp_of_block()] = sums.total;
            __syncthreads();
            std::uint32_t before = end + sums.before;
            for (int w = 0; w != kernel_warps; ++w) {
                if (w < warp_of_block()) before += of_warps[w];
                end += of_warps[w];
            }
            __syncthreads();
#pragma unroll
            for (std::size_t k = 0; k != run; ++k) {
                if (mine + k < tiles) index[mine + k] = before + ends[k];
            }
        }
        if (threadIdx.x == 0) *size = exact_differences::word * (tiles + end);
    }
};

/// Function object of a kernel: copies the index and the payloads in `room` to `message`, payload behind payload.
/// Clears the bytes behind these, up to byte `bytes`.
template <class Slices>
struct exact_place_kernel {
    Slices where;
    const std::byte* room;
    std::byte* message;
    std::size_t bytes;
    exact_layout layout{where.last_count(), where.last()};

    static constexpr int resident_blocks = exact_resident_blocks;

    __device__ void operator()() const {
        const auto* const from = reinterpret_cast<const std::uint32_t*>(room);
        auto* const to = reinterpret_cast<std::uint32_t*>(message);
        for_each_tile(layout.tiles, [&](std::size_t tile) {
            const exact_tile t(where, 0, tile);
            const std::uint32_t begin = tile == 0 ? 0 : from[tile - 1];
            const std::uint32_t words = from[tile] - begin;
            const std::uint32_t* const payload = from + layout.tiles + exact_layout::room_at(t.of.place, t.first);
            for (auto w = static_cast<std::uint32_t>(lane_of_warp()); w < words; w += 32)
                to[layout.tiles + begin + w] = payload[w];
            if (lane_of_warp() == 0) to[tile] = begin + words;
        });
        const std::size_t words = layout.tiles + (layout.tiles == 0 ? 0 : from[layout.tiles - 1]);
        const std::size_t first = exact_differences::word * words + std::size_t{blockIdx.x} * kernel_threads;
        for (std::size_t b = first + threadIdx.x; b < bytes; b += std::size_t{gridDim.x} * kernel_threads) {
            message[b] = std::byte{0};
        }
    }
};

}  // namespace zeropp::detail
