#pragma once
/// \file
/// Loads of messages and tensors ahead of their use: while a thread works on a tile, later tiles are copied to shared
/// memory. Loads are always in flight, and take no registers. Of messages, each thread waits for and reads only copies
/// that it has requested, without a barrier. Of tensors, the threads of a warp copy for each other.

#include <zeropp/codec/cuda/codes.cuh>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/instructions.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/codec/cuda/sum_source.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zeropp::detail {

/// Number of bytes of shared memory for each thread's copies: 40 KiB for a thread block of 256 threads. CUDA allows 48
/// KiB unless a program requests more.
inline constexpr int copied_bytes = 160;

/// Number of bytes of shared memory for a run, successive granules of one block: `codes` bytes of codes, and an aligned
/// word with parameters. More than `copied_bytes` if no single copy moves the codes, so that no run fits.
constexpr int copied_bytes_of_run(int codes) {
    return codes == 4 || codes == 8 || codes == 16 ? codes + 4 : copied_bytes + 1;
}

/// Number of successive granules that each thread takes of a tensor, if tiles of the tensor are copied ahead.
inline constexpr int rows_ahead = 4;

/// Shared memory of a thread block for tiles of a source. Each thread has `Granules` granules of a tile, in runs of
/// `Run` successive granules of one block. `possible`: true for sums of several messages of integers with parameters of
/// 2 or 4 bytes, aligned to their size, if two tiles fit.
template <class Source, int Granules, int Run>
struct tiles_ahead {
    static constexpr bool possible = false;
};

template <integer_quantizer From, int Messages, int Granules, int Run>
    requires(Messages > 1 && (params_bytes<From> == 2 || params_bytes<From> == 4) &&
             alignof(typename From::params) == params_bytes<From> &&
             2 * Messages * Granules / Run * copied_bytes_of_run(Run * From::code_bits) <= copied_bytes)
struct tiles_ahead<sum_source<From, Messages>, Granules, Run> {
    static constexpr bool possible = true;

    using source = sum_source<From, Messages>;
    using cursor = typename source::cursor;

    static constexpr int bytes = Run * From::code_bits;
    static constexpr int runs = Granules / Run;
    /// Number of tiles, three if they fit, otherwise two: one to read, the others on their way.
    static constexpr unsigned tiles = 3 * Messages * runs * copied_bytes_of_run(bytes) <= copied_bytes ? 3 : 2;

    /// Array type: a `Word` for each tile, message, run and thread.
    template <class Word>
    using copies = Word[std::size_t{tiles}][std::size_t{Messages}][std::size_t{runs}][kernel_threads];
    copies<widest_access<bytes>> codes;
    copies<std::uint32_t> params;

    /// Starts copies of all granules granule(n) of a tile into place `at` of shared memory, from 0 to `tiles` - 1.
    template <class Granule>
    __device__ void request(const source& from, cursor s, Granule granule, unsigned at) {
#pragma unroll
        for (int c = 0; c != Messages; ++c) {
#pragma unroll
            for (int k = 0; k != runs; ++k) {
                const std::size_t first = granule(static_cast<std::size_t>(k * Run));
                start_copy<bytes>(&codes[at][c][k][threadIdx.x], s.codes + first * From::code_bits);
                const std::byte* const place = coded_granule<From>::params_of(s, first);
                start_copy<4>(&params[at][c][k][threadIdx.x], place - in_word(place));
            }
            s = from.next(s);
        }
    }

    /// Waits for the tile in place `at` of shared memory, and loads granule number granule(n) into r[n], for all n. The
    /// thread must have made exactly `tiles` - 1 groups of copies after the group with this tile.
    template <class Granule>
    __device__ void take(const source&, const cursor& s, Granule granule, unsigned at,
                         typename source::raw (&r)[std::size_t{Granules}]) const {
        wait_for_copies<tiles - 1>();
#pragma unroll
        for (int c = 0; c != Messages; ++c) {
#pragma unroll
            for (int k = 0; k != runs; ++k) {
                const std::byte* const place =
                    coded_granule<From>::params_of(s, granule(static_cast<std::size_t>(k * Run)));
                const std::uint32_t word = params[at][c][k][threadIdx.x] >> 8 * in_word(place);
                coded_granule<From> g{};
                memcpy(&g.params, &word, sizeof g.params);
                code_run<From::code_bits, Run> run;
                load_words<bytes, false>(&codes[at][c][k][threadIdx.x], run.data);
#pragma unroll
                for (int i = 0; i != Run; ++i) {
                    g.codes = run.at(i);
                    r[k * Run + i].of[c] = g;
                }
            }
        }
    }

private:
    /// Offset in bytes of a block's parameters, at `place`, in the aligned 4-byte word that contains them. Messages
    /// begin on 16-byte boundaries, so it is equal for all.
    __device__ static unsigned in_word(const std::byte* place) {
        return params_bytes<From> == 4 ? 0 : static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(place)) % 4;
    }
};

/// Shared memory of a thread block for tiles of a tensor with elements of 16 bits, of which each thread has four
/// successive granules. The threads of a warp copy pieces of 16 bytes in a row for each other. The pieces of a thread
/// have an order by its lane, so that eight neighbouring lanes read all banks. Threads must take successive granules.
template <class T, class Tensor>
    requires(sizeof(T) == 2)
struct tiles_ahead<tensor_source<T, Tensor>, rows_ahead, rows_ahead> {
    static constexpr bool possible = true;

    using source = tensor_source<T, Tensor>;
    using cursor = typename source::cursor;

    static constexpr unsigned tiles = 2;

    uint4 pieces[std::size_t{tiles}][kernel_threads * std::size_t{rows_ahead}];

    /// Starts copies of the thread block's granules into place `at` of shared memory, 0 or 1. All threads of a warp
    /// must call this together. A slice that is not on a 16-byte boundary is not copied.
    template <class Granule>
    __device__ void request(const source&, const cursor& s, Granule granule, unsigned at) {
        if (!s.aligned) return;
        const auto lane = static_cast<unsigned>(lane_of_warp());
        const auto* const of_warp =
            reinterpret_cast<const uint4*>(s.slice + granule(0) * granule_size) - lane * rows_ahead;
#pragma unroll
        for (unsigned i = 0; i != rows_ahead; ++i) {
            const unsigned piece = i * 32 + lane;
            start_copy<16>(&pieces[at][place(threadIdx.x - lane + piece / rows_ahead, piece % rows_ahead)],
                           of_warp + piece);
        }
    }

    /// Waits for the tile in place `at` of shared memory, and loads granule number granule(n) into r[n], for all n. All
    /// threads of a warp must call this together. Each must have made one group of copies after the one with this tile.
    template <class Granule>
    __device__ void take(const source& from, const cursor& s, Granule granule, unsigned at,
                         typename source::raw (&r)[std::size_t{rows_ahead}]) const {
        if (!s.aligned) return from.template fetch_whole<rows_ahead>(s, granule, r);
        wait_for_copies<tiles - 1>();
        __syncwarp();  // copies of other lanes
#pragma unroll
        for (unsigned n = 0; n != rows_ahead; ++n) {
            load_words<16, false>(&pieces[at][place(threadIdx.x, n)], r[n].data);
        }
        __syncwarp();  // before copies of the next tile but one
    }

private:
    /// Index in shared memory of piece n of a thread.
    __device__ static unsigned place(unsigned thread, unsigned n) {
        return thread * rows_ahead + (n ^ thread / 2 % rows_ahead);
    }
};

}  // namespace zeropp::detail
