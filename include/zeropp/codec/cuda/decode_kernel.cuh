#pragma once
/// \file
/// The kernel that writes tensors: decodes messages, sums them, divides the sums, and stores or adds these. Bits equal
/// the host codec's.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/rotation.cuh>
#include <zeropp/codec/cuda/sum_source.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/math.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// Function object of a kernel: writes sums of messages to the elements of a tensor, or of a list of tensors, that
/// `where` selects. `last` says if sums replace old values or are added to them. Tiles of a list run across the tensors
/// of a message: a tile with several tensors goes granule by granule.
template <class Source, class T, class Slices = slices, class Tensor = T*>
struct decode_kernel {
    Source source;
    Slices where;
    Tensor tensor;
    epilogue last;

    /// Number of granules of a tile that each thread takes.
    static constexpr int granules_per_thread = granules_in_flight(Source::loaded_bytes, Source::loaded_words);
    /// Largest number of successive granules that one thread takes. Four if values are rotated back in windows of 32
    /// elements: one thread then has a whole window. Otherwise one, because threads exchange elements of several
    /// granules before they store them.
    static constexpr int most_together = Source::rotation == 4 * granule_size ? 4 : 1;
    static constexpr int together = Source::together < most_together ? Source::together : most_together;
    static constexpr int run = granules_per_thread < together ? granules_per_thread : together;
    static constexpr std::size_t tile_granules = std::size_t{granules_per_thread} * kernel_threads;
    static constexpr int resident_blocks =
        resident_blocks_for(granules_per_thread * Source::loaded_words + Source::scratch_words +
                            static_cast<int>(sizeof(raw_granule<T>) / 4));

    /// Number of granules of a quantization block. In a list, the last block of each tensor counts as whole.
    static constexpr std::size_t block_granules = Source::block_size / granule_size;

    /// Number of tiles that the elements of one slot fill.
    static std::size_t tiles(const Slices& w) {
        if constexpr (Slices::is_list) {
            if (w.sections() == 0) return 0;
            const std::size_t blocks =
                w.last().blocks(Source::block_size) + ceil_div(w.last_count(), Source::block_size);
            return ceil_div(blocks * block_granules, tile_granules);
        } else {
            return ceil_div(w.count, tile_granules * granule_size);
        }
    }

    __device__ void operator()() const {
        for (int s = static_cast<int>(blockIdx.y); s < where.slots; s += static_cast<int>(gridDim.y)) {
            if constexpr (Slices::is_list) {
                write_list(s);
            } else {
                const part all = open(0, s);
                const auto whole = static_cast<unsigned>(all.size / (tile_granules * granule_size));
                const unsigned rest = write_whole(all, 0, blockIdx.x, whole, gridDim.x);
                for (std::size_t first = rest * tile_granules; first * granule_size < all.size;
                     first += gridDim.x * tile_granules) {
#pragma unroll 1
                    for (int r = 0; r != granules_per_thread; ++r) {
                        write_part(all, first + threadIdx.x + static_cast<std::size_t>(r * kernel_threads));
                    }
                }
            }
        }
    }

private:
    /// One section of a slot: the elements of one tensor in the slot's messages.
    struct part {
        typename Source::cursor from;  // where the messages' codes and parameters lie
        T* slice;                      // first element to write
        bool aligned;                  // true if `slice` is on a 16-byte boundary
        std::size_t size;              // number of elements to write
    };

    __device__ part open(std::size_t i, int s) const {
        const section of = where.at(i);
        const std::size_t size = of.size(where.rank(s));
        T* slice = into_global_memory(tensor_at(tensor, where.tensor(i)));
        // The offset of a slot without elements may lie beyond the tensor's end.
        if (size != 0) slice += of.offset(where.in_memory(s));
        return {source.open(where, of, i, s), slice, reinterpret_cast<std::uintptr_t>(slice) % 16 == 0, size};
    }

    /// The rest of a section from granule number `granules` on (`moved` in sources.cuh), without a size.
    __device__ static part moved(const part& p, std::size_t granules) {
        return {Source::moved(p.from, granules), kept_address(p.slice + granules * granule_size), p.aligned, 0};
    }

    /// Writes the elements of all tensors of slot `s` of a list. This thread block takes tiles in a row. So it finds a
    /// tensor once for all whole tiles of it.
    __device__ void write_list(int s) const {
        const std::size_t granules = where.blocks_end(where.sections() - 1, Source::block_size) * block_granules;
        const std::size_t tiles = ceil_div(granules, tile_granules);
        const std::size_t end = tiles * (blockIdx.x + 1) / gridDim.x;
        for (std::size_t tile = tiles * blockIdx.x / gridDim.x; tile < end;) {
            const std::size_t first = tile * tile_granules;
            const auto [i, before] = section_of(first);
            const part p = open(i, s);
            const std::size_t start = first - before;
            const std::size_t of_section = p.size / granule_size;
            const std::size_t in_section = of_section < start ? 0 : (of_section - start) / tile_granules;
            if (in_section != 0) {
                const std::size_t whole = in_section < end - tile ? in_section : end - tile;
                write_whole(p, start, 0, static_cast<unsigned>(whole), 1);
                tile += whole;
                continue;
            }
#pragma unroll 1
            for (int r = 0; r != granules_per_thread; ++r) {
                const std::size_t granule = first + threadIdx.x + static_cast<std::size_t>(r * kernel_threads);
                const auto [own, before_own] = section_of(granule);
                const part q = open(own, s);
                write_part(q, granule - before_own);
            }
            ++tile;
        }
    }

    /// Writes whole tiles of a section: number `tile`, then every `apart`-th before `end`. Tile 0 begins with granule
    /// number `start`. Returns the number of the next tile. All threads of the thread block must call this together.
    __device__ unsigned write_whole(const part& p, std::size_t start, unsigned tile, unsigned end,
                                    unsigned apart) const {
        // Addresses of moved sections take registers, which rotations need.
        constexpr bool moves = Source::moves && Source::rotation == 1 && tile_granules % block_granules == 0;
        const std::size_t mine = threadIdx.x * run;
        const part own = moves ? moved(moved(p, start), mine) : p;
        for (; tile < end; tile += apart) {
            if constexpr (moves) {
                write(moved(own, tile * tile_granules), 0);
            } else {
                write(p, start + tile * tile_granules + mine);
            }
        }
        return tile;
    }

    struct found_section {
        std::size_t i;
        std::size_t before;  // number of granules of the sections before, each section's last block counted as whole
    };
    __device__ found_section section_of(std::size_t granule) const {
        const std::size_t i = where.section_of(granule / block_granules, Source::block_size);
        return {i, where.at(i).place.blocks(Source::block_size) * block_granules};
    }

    /// Writes a whole tile of `p`, in which granule `mine` is this thread's first. All threads of the thread block must
    /// call this together.
    __device__ void write(const part& p, std::size_t mine) const {
        const auto granule = [=](std::size_t r) { return mine + r / run * (kernel_threads * run) + r % run; };
        typename Source::raw raw[std::size_t{granules_per_thread}];
        source.template fetch_whole<run>(p.from, granule, raw);
#pragma unroll
        for (std::size_t r = 0; r != granules_per_thread; r += run) {
            typename Source::fragment fragments[std::size_t{run}];
            // Ordinary steps of integers take the factor of the rotation with them.
            constexpr bool rotates_integers = Source::rotation > 1 && Source::integers;
            bool scaled = false;
            if constexpr (rotates_integers) {
                scaled = source.has_ordinary_steps(raw[r]);
                source.template fragments<run>(raw + r, fragments, scaled ? scale_back : 1.0f);
            } else {
                source.template fragments<run>(raw + r, fragments);
            }
            float x[std::size_t{run}][granule_size];
#pragma unroll
            for (std::size_t k = 0; k != run; ++k) fragments[k].to_floats(x[k]);
            rotate_back<!rotates_integers>(x, true);
            if (rotates_integers && !scaled) {
#pragma unroll
                for (std::size_t k = 0; k != run; ++k) multiply(x[k], scale_back);
            }
            T* const to = p.slice + granule(r) * granule_size;
            raw_granule<T> out[std::size_t{run}];
#pragma unroll
            for (std::size_t k = 0; k != run; ++k) {
                if (last.accumulate) out[k] = load_whole_granule(to + k * granule_size, p.aligned);
                finish_granule(x[k], out[k]);
            }
            store_whole_granules<Slices::is_list>(to, out, p.aligned);
        }
    }

    /// Writes the elements of the granule with index `granule` in section `p`, if it has any. All threads of the thread
    /// block must call this together, successive threads with successive granules.
    __device__ void write_part(const part& p, std::size_t granule) const {
        const auto& [from, slice, aligned, size] = p;
        const int valid = valid_elements(size, granule);
        if (Source::rotation == 1 && valid == 0) return;
        float x[1][granule_size];
        source.fragment_part(from, granule, valid).to_floats(x[0]);
        rotate_back(x, is_in_whole_window<Source::rotation>(size, granule));
        if (valid == 0) return;
        T* const to = slice + granule * granule_size;
        raw_granule<T> out;
        if (valid == granule_size) {
            if (last.accumulate) out = load_whole_granule(to, aligned);
            finish_granule(x[0], out);
            store_whole_granule(to, out, aligned);
        } else {
            if (last.accumulate) out = load_part_granule(to, valid);
            finish_granule(x[0], out);
            store_part_granule(to, out, valid);
        }
    }

    static constexpr float scale_back = rotation_scale<Source::rotation>(true);

    template <bool Scaled = true, std::size_t N>
    __device__ static void rotate_back(float (&x)[N][granule_size], bool whole) {
        constexpr int in_a_row = N;
        rotate_granules<Source::rotation, kernel_threads, in_a_row, in_a_row, Scaled>(
            x, true, [=](std::size_t) { return whole; });
    }

    /// Divides the sums `result` of a granule and stores them in `out` as elements. If `last.accumulate`, `out` has the
    /// old elements, and sums are added to them.
    __device__ void finish_granule(float (&result)[granule_size], raw_granule<T>& out) const {
        source.finish(result);
        if (last.accumulate) {
            float present[granule_size];
            out.to_floats(present);
            if (last.drop_non_finite) drop_non_finite(present);
#pragma unroll
            for (int i = 0; i != granule_size; ++i) result[i] = present[i] + result[i];
        }
        out = raw_granule<T>::from_floats(result);
    }
};

}  // namespace zeropp::detail
