#pragma once
/// \file
/// Walsh-Hadamard transforms of values in the registers of neighbouring threads.

#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>

namespace zeropp::detail {

/// True if the window of `Size` elements that contains granule number `granule` lies within the first `size` elements.
template <int Size>
__device__ bool is_in_whole_window(std::size_t size, std::size_t granule) {
    constexpr auto window = static_cast<std::size_t>(Size);
    return (granule * granule_size / window + 1) * window <= size;
}

/// Applies the Walsh-Hadamard transform, or its inverse if `back`, to windows of `Size` elements in the N granules of
/// each thread. Counted from a multiple of `Size` elements, granule n < PerLane of a thread has the index
///     team * Lanes * PerLane + n / Run * Lanes * Run + lane * Run + n % Run,
/// with team = thread / Lanes and lane = thread % Lanes. The next PerLane granules lie a whole thread block's granules
/// further, and so on. So each bit of an index is a bit of the thread's index or of n. Two granules of a butterfly are
/// at most 16 apart, since a window has at most 256 elements. So they lie in one thread or in one warp.
///
/// whole(n) is true if granule n lies in a whole window; other granules stay as they are. `Lanes`, `PerLane` and `Run`
/// are powers of two. Without `Scaled`, leaves out the product with `rotation_scale`. All threads of the warp must call
/// this together.
template <int Size, int Lanes, int PerLane, int Run, bool Scaled = true, std::size_t N, class Whole>
__device__ void rotate_granules(float (&x)[N][granule_size], bool back, Whole whole) {
    if constexpr (Size > 1) {
#pragma unroll
        for (std::size_t n = 0; n != N; ++n) {
            if (!whole(n)) continue;
#pragma unroll
            for (int stride = 1; stride != granule_size; stride *= 2) {
#pragma unroll
                for (int i = 0; i != granule_size; ++i) {
                    if ((i & stride) != 0) continue;
                    const float a = x[n][i];
                    const float b = x[n][i + stride];
                    x[n][i] = a + b;
                    x[n][i + stride] = a - b;
                }
            }
        }
#pragma unroll
        for (int stride = 1; stride < Size / granule_size; stride *= 2) {
            if (stride < Run || (stride >= Lanes * Run && stride < Lanes * PerLane)) {
                const auto apart = static_cast<std::size_t>(stride < Run ? stride : stride / Lanes);
#pragma unroll
                for (std::size_t n = 0; n != N; ++n) {
                    if ((n & apart) != 0 || !whole(n)) continue;
#pragma unroll
                    for (int i = 0; i != granule_size; ++i) {
                        const float a = x[n][i];
                        const float b = x[(n + apart) % N][i];
                        x[n][i] = a + b;
                        x[(n + apart) % N][i] = a - b;
                    }
                }
            } else {
                const int distance = stride < Lanes * Run ? stride / Run : stride / PerLane;
                // The thread with the upper granule of a pair gets lower minus upper, the other thread the sum. The
                // product is exact, so fusing it with the addition changes nothing.
                const float sign = (static_cast<int>(threadIdx.x) & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
                for (std::size_t n = 0; n != N; ++n) {
                    const bool take = whole(n);
#pragma unroll
                    for (int i = 0; i != granule_size; ++i) {
                        const float other = __shfl_xor_sync(0xffffffffu, x[n][i], distance);
                        if (take) x[n][i] = x[n][i] * sign + other;
                    }
                }
            }
        }
        if constexpr (Scaled) {
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) {
                if (whole(n)) multiply(x[n], rotation_scale<Size>(back));
            }
        }
    }
}

}  // namespace zeropp::detail
