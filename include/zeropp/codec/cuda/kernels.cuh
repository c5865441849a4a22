#pragma once
/// \file
/// The kernels: two function objects, each over a source of values. With a tensor as source, `encode_kernel` is encode
/// and reorder + encode; with messages, it is decode + sum + encode. `decode_kernel` is decode, and decode + sum + scale.
/// Bit-identical to the host codec: the same quantizer arithmetic, the same order of sums.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/slice_order.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zeropp::detail {

/// The tuning of the device that is being compiled for.
#if defined(__CUDA_ARCH__)
inline constexpr kernel_tuning device_tuning = tuning_for(__CUDA_ARCH__ / 10);
#else
inline constexpr kernel_tuning device_tuning = tuning_for(0);
#endif

__device__ inline std::size_t global_thread() {
    return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t all_threads() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

/// How many of the eight elements from `begin` on exist.
__device__ inline int valid_elements(std::size_t size, std::size_t begin) {
    return begin >= size ? 0 : size - begin < granule_size ? static_cast<int>(size - begin) : granule_size;
}

/// Values from a tensor.
template <class T>
struct tensor_source {
    const T* tensor;

    using raw = raw_granule<T>;
    static constexpr int loads = raw::loads;

    /// What stays the same for a whole slot.
    struct slot {
        const T* slice;
        bool aligned;
    };

    __device__ slot open(const slices& where, int s) const {
        const T* slice = tensor + where.offset(s);
        return {slice, reinterpret_cast<std::uintptr_t>(slice) % 16 == 0};
    }
    __device__ raw fetch(const slot& s, std::size_t begin, int valid) const {
        return load_granule(s.slice + begin, valid, s.aligned);
    }
    __device__ static float value(const raw& r, int i) { return element_traits<T>::to_float(r.at(i)); }
};

/// Sums, in order, of the values of `Contributors` messages for each slot; 0 where the number is known at run time only.
template <quantizer From, int Contributors>
struct sum_source {
    From from;
    const std::byte* messages;
    int contributors;
    int slots;

    struct raw {
        float sum[granule_size];
    };
    static constexpr int loads = 2;

    struct slot {
        const std::byte* first;
        std::size_t stride;
        std::size_t params_offset;
        std::size_t elements;
    };

    __device__ slot open(const slices& where, int s) const {
        const wire_layout<From> layout(where.count);
        return {messages + static_cast<std::size_t>(s) * layout.bytes, static_cast<std::size_t>(slots) * layout.bytes,
                layout.params_offset, layout.elements};
    }

    __device__ raw fetch(const slot& s, std::size_t begin, int valid) const {
        raw r{};
        if (valid == 0) return r;
        const int elements = valid_elements(s.elements, begin);
        const std::byte* const codes = s.first + begin / granule_size * From::code_bits;
        const std::byte* const params = s.first + s.params_offset + begin / From::block_size * params_bytes<From>;
        add(r, codes, params, elements, true);
        if constexpr (Contributors != 0) {
#pragma unroll
            for (int c = 1; c < Contributors; ++c) {
                add(r, codes + static_cast<std::size_t>(c) * s.stride, params + static_cast<std::size_t>(c) * s.stride, elements, false);
            }
        } else {
            for (int c = 1; c < contributors; ++c) {
                add(r, codes + static_cast<std::size_t>(c) * s.stride, params + static_cast<std::size_t>(c) * s.stride, elements, false);
            }
        }
        return r;
    }
    __device__ static float value(const raw& r, int i) { return r.sum[i]; }

private:
    __device__ void add(raw& r, const std::byte* codes, const std::byte* stored, int elements, bool first) const {
        const auto words = load_codes<From::code_bits>(codes, elements);
        typename From::params params;
        if constexpr (params_bytes<From> != 0) params = *reinterpret_cast<const typename From::params*>(stored);
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            const float x = from.decode(code_at(words, i), params);
            r.sum[i] = first ? x : r.sum[i] + x;
        }
    }
};

/// Merges the stats of `Lanes` neighbouring threads; all of them get the result.
template <int Lanes, class Stats>
__device__ Stats merge_stats(Stats stats) {
    static_assert(sizeof(Stats) % 4 == 0 || sizeof(Stats) == 1, "stats travel between threads as 32-bit words");
    if constexpr (sizeof(Stats) >= 4) {
#pragma unroll
        for (int distance = 1; distance < Lanes; distance *= 2) {
            constexpr int words = static_cast<int>(sizeof(Stats) / 4);
            std::uint32_t mine[words];
            memcpy(mine, &stats, sizeof(Stats));
#pragma unroll
            for (int w = 0; w != words; ++w) mine[w] = __shfl_xor_sync(0xffffffffu, mine[w], distance);
            Stats other;
            memcpy(&other, mine, sizeof(Stats));
            stats.merge(other);
        }
    }
    return stats;
}

/// Writes the messages of `where.slots` slots. A team of up to 32 neighbouring threads shares a block; a warp works on
/// several blocks at a time, so that enough loads are under way before the first is needed. Blocks too large for the
/// registers of a team are read twice, the second time from a cache.
template <quantizer Q, class Source>
struct encode_kernel {
    Q q;
    Source source;
    slices where;
    std::byte* messages;

    static constexpr int block_granules = Q::block_size / granule_size;
    static constexpr int lanes = block_granules < 32 ? block_granules : 32;
    static constexpr int lane_granules = block_granules / lanes;
    /// Most granules of one block that a thread holds in registers.
    static constexpr int most_held = 8;
    static constexpr bool held = lane_granules <= most_held;

    /// Threads for one slot of n elements, were each to do one block's share.
    static constexpr std::size_t threads(std::size_t n) { return ceil_div(n, Q::block_size) * lanes; }

    __device__ void operator()() const {
        const wire_layout<Q> layout(where.count);
        for (int s = static_cast<int>(blockIdx.y); s < where.slots; s += static_cast<int>(gridDim.y)) {
            std::byte* const message = messages + static_cast<std::size_t>(s) * layout.bytes;
            const auto slot = source.open(where, s);
            const std::size_t size = where.size(s);
            if constexpr (held) {
                encode_held(layout, slot, size, message);
            } else {
                encode_streamed(layout, slot, size, message);
            }
            if (global_thread() == 0) clear_padding(layout, message);
        }
    }

private:
    static constexpr int teams = 32 / lanes;
    static constexpr int wanted = device_tuning.loads_in_flight / (lane_granules * Source::loads);
    static constexpr int rounds = wanted < 1 ? 1 : wanted;

    __device__ static int lane() { return static_cast<int>(threadIdx.x) % lanes; }
    __device__ static int team() { return static_cast<int>(threadIdx.x) % 32 / lanes; }

    /// The first element of the g-th granule of this thread in a block.
    __device__ static std::size_t granule_begin(std::size_t block, int g) {
        return block * Q::block_size + static_cast<std::size_t>(g * lanes + lane()) * granule_size;
    }

    __device__ static void add(typename Q::stats& stats, const typename Source::raw& raw, int valid) {
        if (valid == granule_size) {
#pragma unroll
            for (int i = 0; i != granule_size; ++i) stats.add(Source::value(raw, i));
        } else {
#pragma unroll
            for (int i = 0; i != granule_size; ++i) {
                if (i < valid) stats.add(Source::value(raw, i));
            }
        }
    }

    __device__ void write(const wire_layout<Q>& layout, const typename Source::raw& raw, const typename Q::params& params,
                          std::size_t begin, int valid, std::byte* message) const {
        const int nominal = valid_elements(layout.elements, begin);
        if (nominal == 0) return;
        std::uint32_t codes[granule_size];
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            codes[i] = q.encode(Source::value(raw, i), params);
            if (i >= valid) codes[i] = 0;
        }
        store_codes<Q::code_bits>(message + begin / granule_size * Q::code_bits, pack_codes<Q::code_bits>(codes), nominal);
    }

    __device__ static void write_params(const wire_layout<Q>& layout, const typename Q::params& params, std::size_t block,
                                        std::size_t size, std::byte* message) {
        if constexpr (params_bytes<Q> != 0) {
            if (lane() != 0 || block >= layout.blocks) return;
            typename Q::params stored{};
            if (block * Q::block_size < size) stored = params;
            *reinterpret_cast<typename Q::params*>(message + layout.params_offset + block * params_bytes<Q>) = stored;
        }
    }

    template <class Slot>
    __device__ void encode_held(const wire_layout<Q>& layout, const Slot& slot, std::size_t size, std::byte* message) const {
        constexpr std::size_t blocks_at_once = static_cast<std::size_t>(teams) * rounds;
        const std::size_t step = all_threads() / 32 * blocks_at_once;
        for (std::size_t first = global_thread() / 32 * blocks_at_once; first < layout.blocks; first += step) {
            typename Source::raw raw[rounds][lane_granules];
#pragma unroll
            for (int r = 0; r != rounds; ++r) {
#pragma unroll
                for (int g = 0; g != lane_granules; ++g) {
                    const std::size_t begin = granule_begin(first + static_cast<std::size_t>(r * teams + team()), g);
                    raw[r][g] = source.fetch(slot, begin, valid_elements(size, begin));
                }
            }
#pragma unroll
            for (int r = 0; r != rounds; ++r) {
                const std::size_t block = first + static_cast<std::size_t>(r * teams + team());
                typename Q::stats stats;
#pragma unroll
                for (int g = 0; g != lane_granules; ++g) add(stats, raw[r][g], valid_elements(size, granule_begin(block, g)));
                const typename Q::params params = q.fit(merge_stats<lanes>(stats));
#pragma unroll
                for (int g = 0; g != lane_granules; ++g) {
                    const std::size_t begin = granule_begin(block, g);
                    write(layout, raw[r][g], params, begin, valid_elements(size, begin), message);
                }
                write_params(layout, params, block, size, message);
            }
        }
    }

    template <class Slot>
    __device__ void encode_streamed(const wire_layout<Q>& layout, const Slot& slot, std::size_t size, std::byte* message) const {
        const std::size_t step = all_threads() / 32;
        for (std::size_t block = global_thread() / 32; block < layout.blocks; block += step) {
            typename Q::stats stats;
            for (int g = 0; g != lane_granules; ++g) {
                const std::size_t begin = granule_begin(block, g);
                const int valid = valid_elements(size, begin);
                add(stats, source.fetch(slot, begin, valid), valid);
            }
            const typename Q::params params = q.fit(merge_stats<lanes>(stats));
            for (int g = 0; g != lane_granules; ++g) {
                const std::size_t begin = granule_begin(block, g);
                const int valid = valid_elements(size, begin);
                write(layout, source.fetch(slot, begin, valid), params, begin, valid, message);
            }
            write_params(layout, params, block, size, message);
        }
    }

    /// Between the codes and the parameters, and behind the parameters.
    __device__ static void clear_padding(const wire_layout<Q>& layout, std::byte* message) {
        for (std::size_t i = code_bytes<Q>(layout.elements); i < layout.params_offset; ++i) message[i] = std::byte{0};
        for (std::size_t i = layout.params_offset + layout.blocks * params_bytes<Q>; i < layout.bytes; ++i) {
            message[i] = std::byte{0};
        }
    }
};

/// Writes the elements that `where` names from sums of messages, finished as the codec says.
template <class Source, class T>
struct decode_kernel {
    Source source;
    slices where;
    T* tensor;
    finish last;
    /// 1 / last.divisor where that is exact, so that multiplying gives the bits of the division; otherwise 0.
    float exact_reciprocal;

    static constexpr std::size_t threads(std::size_t n) { return ceil_div(n, granule_size); }

    __device__ void operator()() const {
        for (int s = static_cast<int>(blockIdx.y); s < where.slots; s += static_cast<int>(gridDim.y)) {
            const auto slot = source.open(where, s);
            T* const slice = tensor + where.offset(s);
            const bool aligned = reinterpret_cast<std::uintptr_t>(slice) % 16 == 0;
            const std::size_t size = where.size(s);
            const std::size_t granules = ceil_div(size, granule_size);
            for (std::size_t first = global_thread(); first < granules; first += all_threads() * rounds) {
                typename Source::raw raw[rounds];
#pragma unroll
                for (int r = 0; r != rounds; ++r) {
                    const std::size_t begin = (first + static_cast<std::size_t>(r) * all_threads()) * granule_size;
                    raw[r] = source.fetch(slot, begin, valid_elements(size, begin));
                }
#pragma unroll
                for (int r = 0; r != rounds; ++r) {
                    const std::size_t begin = (first + static_cast<std::size_t>(r) * all_threads()) * granule_size;
                    write(raw[r], slice + begin, valid_elements(size, begin), aligned);
                }
            }
        }
    }

private:
    static constexpr int wanted = device_tuning.loads_in_flight / Source::loads;
    static constexpr int rounds = wanted < 1 ? 1 : wanted;

    __device__ void write(const typename Source::raw& raw, T* to, int valid, bool aligned) const {
        if (valid == 0) return;
        raw_granule<T> out;
        if (last.accumulate) out = load_granule<T>(to, valid, aligned);
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            const float sum = Source::value(raw, i);
            const float result = exact_reciprocal != 0 ? product(sum, exact_reciprocal) : quotient(sum, last.divisor);
            const float value = last.accumulate ? element_traits<T>::to_float(out.at(i)) + result : result;
            out.set(i, element_traits<T>::from_float(value));
        }
        store_granule(to, out, valid, aligned);
    }
};

}  // namespace zeropp::detail
