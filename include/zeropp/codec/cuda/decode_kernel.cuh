#pragma once
/// \file
/// The kernel that writes tensors: decode, and decode + sum + scale (+ accumulate). Units of work and bits as in the
/// kernel that writes messages.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/rotation.cuh>
#include <zeropp/codec/cuda/sum_source.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/math.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// Writes the elements that `where` names from sums of messages, finished as the codec says.
template <class Source, class T>
struct decode_kernel {
    Source source;
    slices where;
    T* tensor;
    finish last;
    /// 1 / last.divisor where that is exact, so that multiplying gives the bits of the division; otherwise 0.
    float exact_reciprocal;

    /// Granules that a thread has under way.
    static constexpr int rounds = granules_at_once(Source::loaded_bytes, Source::loaded_words);
    static constexpr std::size_t unit_granules = std::size_t{rounds} * kernel_threads;
    static constexpr int resident_blocks =
        resident_blocks_for(rounds * Source::loaded_words + static_cast<int>(sizeof(raw_granule<T>) / 4));

    /// Units in a slot of n elements.
    static constexpr std::size_t units(std::size_t n) { return ceil_div(n, unit_granules * granule_size); }

    __device__ void operator()() const {
        for (int s = static_cast<int>(blockIdx.y); s < where.slots; s += static_cast<int>(gridDim.y)) {
            const std::size_t size = where.size(s);
            if (size == 0) continue;
            const auto slot = source.open(where, s);
            T* const slice = tensor + where.offset(s);
            const bool aligned = reinterpret_cast<std::uintptr_t>(slice) % 16 == 0;
            for (std::size_t first = blockIdx.x * unit_granules; first * granule_size < size;
                 first += gridDim.x * unit_granules) {
                const std::size_t mine = first + threadIdx.x;
                if (aligned && (first + unit_granules) * granule_size <= size) {
                    typename Source::raw raw[std::size_t{rounds}];
                    source.fetch_whole(
                        slot, [=](std::size_t r) { return mine + r * kernel_threads; }, raw);
#pragma unroll
                    for (int r = 0; r != rounds; ++r) {
                        T* const to = slice + (mine + static_cast<std::size_t>(r * kernel_threads)) * granule_size;
                        raw_granule<T> out;
                        if (last.accumulate) out = load_whole_granule(to, true);
                        float x[1][granule_size];
                        source.values(raw[r], mine + static_cast<std::size_t>(r * kernel_threads), x[0]);
                        rotate_back(x, true);
                        finish_granule(x[0], out);
                        store_whole_granule(to, out, true);
                    }
                } else {
#pragma unroll 1
                    for (int r = 0; r != rounds; ++r) {
                        write_part(slot, slice, aligned, size, mine + static_cast<std::size_t>(r * kernel_threads));
                    }
                }
            }
        }
    }

private:
    /// All threads of the block come here together.
    template <class Slot>
    __device__ void write_part(const Slot& slot, T* slice, bool aligned, std::size_t size, std::size_t granule) const {
        const int valid = valid_elements(size, granule);
        if (Source::rotation == 1 && valid == 0) return;
        float x[1][granule_size];
        source.values(source.fetch_part(slot, granule, valid), granule, x[0]);
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

    __device__ static void rotate_back(float (&x)[1][granule_size], bool whole) {
        rotate_granules<Source::rotation, kernel_threads, 1>(x, true, [=](std::size_t) { return whole; });
    }

    /// out <- the elements, added to what is there if asked for.
    __device__ void finish_granule(float (&result)[granule_size], raw_granule<T>& out) const {
        if (exact_reciprocal != 0) {
#pragma unroll
            for (int i = 0; i != granule_size; ++i) result[i] = times_power_of_two(result[i], exact_reciprocal);
        } else {
#pragma unroll
            for (int i = 0; i != granule_size; ++i) result[i] = quotient(result[i], last.divisor);
        }
        if (last.accumulate) {
            float present[granule_size];
            out.to_floats(present);
#pragma unroll
            for (int i = 0; i != granule_size; ++i) result[i] = present[i] + result[i];
        }
        out = raw_granule<T>::from_floats(result);
    }

    /// a * b, as the quotient by 1 / b to the bit: rounded before anything is added, and with a zero's sign.
    __device__ static float times_power_of_two(float a, float b) {
#if defined(__CUDA_ARCH__)
        return __fmul_rn(a, b);
#else
        return a * b;
#endif
    }
};

}  // namespace zeropp::detail
