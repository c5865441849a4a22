#pragma once
/// \file
/// The kernels: two function objects, each over a source of values. With a tensor as source, `encode_kernel` is encode
/// and reorder + encode; with messages, it is decode + sum + encode. `decode_kernel` is decode, and decode + sum + scale.
/// Bit-identical to the host codec: the same quantizer arithmetic, the same order of sums.
///
/// A thread block takes one unit of work after the other: so many whole granules for each thread, all of whose loads
/// start before the first value is needed. A unit that the slice's end cuts short goes granule by granule, so that the
/// ordinary one has neither bounds to check nor registers to check them with.

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
#include <type_traits>

namespace zeropp::detail {

/// The tuning of the device that is being compiled for.
#if defined(__CUDA_ARCH__)
inline constexpr kernel_tuning device_tuning = tuning_for(__CUDA_ARCH__ / 10);
#else
inline constexpr kernel_tuning device_tuning = tuning_for(0);
#endif

/// How many of the eight elements of a granule there are among `size`.
__device__ inline int valid_elements(std::size_t size, std::size_t granule) {
    const std::size_t begin = granule * granule_size;
    return begin >= size ? 0 : size - begin < granule_size ? static_cast<int>(size - begin) : granule_size;
}

/// How many granules each thread has under way, were each to take so many loads of 16 bytes.
constexpr int rounds_for(int loads) {
    return loads < device_tuning.loads_in_flight ? device_tuning.loads_in_flight / loads : 1;
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
        /// Whether whole units take the fast way.
        bool aligned;
    };

    __device__ slot open(const slices& where, int s) const {
        // The offset of a slot without elements may lie beyond the tensor's end.
        const T* slice = where.size(s) != 0 ? tensor + where.offset(s) : tensor;
        return {slice, reinterpret_cast<std::uintptr_t>(slice) % 16 == 0};
    }
    __device__ raw fetch_whole(const slot& s, std::size_t granule) const {
        return load_whole_granule(s.slice + granule * granule_size, true);
    }
    __device__ raw fetch_part(const slot& s, std::size_t granule, int valid) const {
        const T* from = s.slice + granule * granule_size;
        return valid == granule_size ? load_whole_granule(from, s.aligned) : load_part_granule(from, valid);
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
    /// Messages whose loads start together.
    static constexpr int at_once = Contributors != 0 ? Contributors : 4;
    static constexpr int loads = at_once < 4 ? 2 : 4;

    struct slot {
        const std::byte* first;
        std::size_t stride;
        std::size_t params_offset;
        std::size_t elements;
        static constexpr bool aligned = true;
    };

    __device__ slot open(const slices& where, int s) const {
        const wire_layout<From> layout(where.count);
        return {messages + static_cast<std::size_t>(s) * layout.bytes, static_cast<std::size_t>(slots) * layout.bytes,
                layout.params_offset, layout.elements};
    }
    __device__ raw fetch_whole(const slot& s, std::size_t granule) const {
        return sum<at_once>(s, granule, granule_size);
    }
    __device__ raw fetch_part(const slot& s, std::size_t granule, int valid) const {
        if (valid == 0) return raw{};
        return sum<1>(s, granule, valid_elements(s.elements, granule));
    }
    __device__ static float value(const raw& r, int i) { return r.sum[i]; }

private:
    /// The sums of a granule of which the messages hold `elements` elements, from AtOnce messages at a time.
    template <int AtOnce>
    __device__ raw sum(const slot& s, std::size_t granule, int elements) const {
        raw r;
#pragma unroll
        for (int i = 0; i != granule_size; ++i) r.sum[i] = -0.0f;  // what leaves every first value as it is
        const std::byte* message = s.first;
        const int all = Contributors != 0 ? Contributors : contributors;
        int c = 0;
        for (; c + AtOnce <= all; c += AtOnce) {
            add<AtOnce>(r, message, s, granule, elements);
            message += static_cast<std::size_t>(AtOnce) * s.stride;
        }
        if constexpr (AtOnce > 1 && Contributors == 0) {
            for (; c < all; ++c) {
                add<1>(r, message, s, granule, elements);
                message += s.stride;
            }
        }
        return r;
    }

    template <int N>
    __device__ void add(raw& r, const std::byte* message, const slot& s, std::size_t granule, int elements) const {
        constexpr std::size_t block_granules = From::block_size / granule_size;
        const std::byte* codes = message + granule * From::code_bits;
        const std::byte* stored = message + s.params_offset + granule / block_granules * params_bytes<From>;
        code_words<From::code_bits> words[std::size_t{N}];
        typename From::params params[std::size_t{N}];
#pragma unroll
        for (int c = 0; c != N; ++c) {
            words[c] = load_codes<From::code_bits>(codes, elements);
            if constexpr (params_bytes<From> != 0) params[c] = *reinterpret_cast<const typename From::params*>(stored);
            codes += s.stride;
            stored += s.stride;
        }
#pragma unroll
        for (int c = 0; c != N; ++c) {
#pragma unroll
            for (int i = 0; i != granule_size; ++i) r.sum[i] += from.decode(code_at(words[c], i), params[c]);
        }
    }
};

/// Merges each of N stats over groups of `Lanes` neighbouring threads of a warp; all of a group get the result.
template <int Lanes, std::size_t N, class Stats>
__device__ void merge_in_warp(Stats (&stats)[N]) {
    constexpr std::size_t words = sizeof(Stats) / 4;
#pragma unroll
    for (int distance = 1; distance < Lanes; distance *= 2) {
#pragma unroll
        for (std::size_t n = 0; n != N; ++n) {
            std::uint32_t sent[words];
            memcpy(sent, &stats[n], sizeof(Stats));
#pragma unroll
            for (std::size_t w = 0; w != words; ++w) sent[w] = __shfl_xor_sync(0xffffffffu, sent[w], distance);
            Stats other;
            memcpy(&other, sent, sizeof(Stats));
            stats[n].merge(other);
        }
    }
}

/// The same over teams of up to a thread block. Teams of more than a warp need all threads of the block to come here.
template <int Lanes, std::size_t N, class Stats>
__device__ void merge_stats(Stats (&stats)[N]) {
    static_assert(sizeof(Stats) % 4 == 0 || std::is_empty_v<Stats>, "stats travel between threads as 32-bit words");
    if constexpr (!std::is_empty_v<Stats>) {
        merge_in_warp<(Lanes < 32 ? Lanes : 32)>(stats);
        if constexpr (Lanes > 32) {
            constexpr int team_warps = Lanes / 32;
            __shared__ std::uint32_t of_warp[N][kernel_threads / 32][sizeof(Stats) / 4];
            const int lane = static_cast<int>(threadIdx.x) % 32;
            const int warp = static_cast<int>(threadIdx.x) / 32;
            __syncthreads();  // what was here before has been read
            if (lane == 0) {
#pragma unroll
                for (std::size_t n = 0; n != N; ++n) memcpy(of_warp[n][warp], &stats[n], sizeof(Stats));
            }
            __syncthreads();
            const int from = warp / team_warps * team_warps + lane % team_warps;
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) memcpy(&stats[n], of_warp[n][from], sizeof(Stats));
            merge_in_warp<team_warps>(stats);
        }
    }
}

/// Writes the messages of `where.slots` slots. A team of neighbouring threads shares a block, one granule for each where
/// that is no more than a thread block, so that a thread block has a whole number of teams. Blocks too large for a
/// team's registers are read twice, the second time from a cache.
template <quantizer Q, class Source>
struct encode_kernel {
    Q q;
    Source source;
    slices where;
    std::byte* messages;

    static constexpr int block_granules = Q::block_size / granule_size;
    static constexpr int lanes = block_granules < kernel_threads ? block_granules : kernel_threads;
    static constexpr int lane_granules = block_granules / lanes;
    static constexpr int teams = kernel_threads / lanes;
    /// Most granules of one block that a thread holds in registers.
    static constexpr int most_held = 4;
    static constexpr bool held = lane_granules <= most_held;
    static constexpr int rounds = rounds_for(lane_granules * Source::loads);
    static constexpr int unit_blocks = teams * rounds;
    /// Without a number ptxas spills a few registers here and there to make room for a block more. Merging over several
    /// warps takes more of them, and so does widening a half by arithmetic.
    static constexpr int resident_blocks = lanes > 32 || std::is_same_v<Source, tensor_source<half>> ? 2 : 3;

    /// Units in a slot of n elements.
    static constexpr std::size_t units(std::size_t n) {
        return ceil_div(n, static_cast<std::size_t>(unit_blocks) * Q::block_size);
    }

    __device__ void operator()() const {
        const wire_layout<Q> layout(where.count);
        for (int s = static_cast<int>(blockIdx.y); s < where.slots; s += static_cast<int>(gridDim.y)) {
            const auto slot = source.open(where, s);
            const part_of_slot part{layout, where.size(s), messages + static_cast<std::size_t>(s) * layout.bytes};
            for (std::size_t first = std::size_t{blockIdx.x} * unit_blocks; first < layout.blocks;
                 first += std::size_t{gridDim.x} * unit_blocks) {
                if (slot.aligned && (first + unit_blocks) * Q::block_size <= part.size) {
                    encode<rounds, true>(slot, part, first);
                } else {
#pragma unroll 1
                    for (int r = 0; r != rounds; ++r)
                        encode<1, false>(slot, part, first + static_cast<std::size_t>(r * teams));
                }
            }
            if (blockIdx.x == 0 && threadIdx.x == 0) clear_padding(part);
        }
    }

private:
    /// A message, and how many elements there are for it.
    struct part_of_slot {
        wire_layout<Q> layout;
        std::size_t size;
        std::byte* message;
    };

    __device__ static int lane() { return static_cast<int>(threadIdx.x) % lanes; }
    __device__ static int team() { return static_cast<int>(threadIdx.x) / lanes; }

    /// Encodes the blocks from `first` on, Rounds for each team. `Whole` says that all of their elements exist.
    template <int Rounds, bool Whole, class Slot>
    __device__ void encode(const Slot& slot, const part_of_slot& part, std::size_t first) const {
        constexpr int kept = held ? lane_granules : 1;
        typename Source::raw raw[std::size_t{Rounds}][std::size_t{kept}];
        typename Q::stats stats[std::size_t{Rounds}];
        const std::size_t mine = first * block_granules + static_cast<std::size_t>(team() * block_granules + lane());
        const auto granule = [=](int r, int g) {
            return mine + static_cast<std::size_t>(r * teams * block_granules + g * lanes);
        };
#pragma unroll
        for (int r = 0; r != Rounds; ++r) {
            if constexpr (held) {
#pragma unroll
                for (int g = 0; g != lane_granules; ++g) raw[r][g] = fetch<Whole>(slot, part, granule(r, g));
            }
        }
#pragma unroll
        for (int r = 0; r != Rounds; ++r) {
#pragma unroll(most_held)
            for (int g = 0; g != lane_granules; ++g) {
                if constexpr (!held) raw[r][0] = fetch<Whole>(slot, part, granule(r, g));
                add<Whole>(stats[r], raw[r][held ? g : 0], part, granule(r, g));
            }
        }
        merge_stats<lanes>(stats);
#pragma unroll
        for (int r = 0; r != Rounds; ++r) {
            const typename Q::params params = q.fit(stats[r]);
#pragma unroll(most_held)
            for (int g = 0; g != lane_granules; ++g) {
                if constexpr (!held) raw[r][0] = fetch<Whole>(slot, part, granule(r, g));
                write<Whole>(raw[r][held ? g : 0], params, part, granule(r, g));
            }
            write_params<Whole>(params, part, first + static_cast<std::size_t>(r * teams + team()));
        }
    }

    template <bool Whole, class Slot>
    __device__ typename Source::raw fetch(const Slot& slot, const part_of_slot& part, std::size_t granule) const {
        if constexpr (Whole) return source.fetch_whole(slot, granule);
        return source.fetch_part(slot, granule, valid_elements(part.size, granule));
    }

    template <bool Whole>
    __device__ static void add(typename Q::stats& stats, const typename Source::raw& raw, const part_of_slot& part,
                               std::size_t granule) {
        const int valid = Whole ? granule_size : valid_elements(part.size, granule);
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            if (Whole || i < valid) stats.add(Source::value(raw, i));
        }
    }

    template <bool Whole>
    __device__ void write(const typename Source::raw& raw, const typename Q::params& params, const part_of_slot& part,
                          std::size_t granule) const {
        const int valid = Whole ? granule_size : valid_elements(part.size, granule);
        const int nominal = Whole ? granule_size : valid_elements(part.layout.elements, granule);
        if (nominal == 0) return;
        std::uint32_t codes[granule_size];
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            codes[i] = q.encode(Source::value(raw, i), params);
            if (i >= valid) codes[i] = 0;
        }
        store_codes<Q::code_bits>(part.message + granule * Q::code_bits, pack_codes<Q::code_bits>(codes), nominal);
    }

    template <bool Whole>
    __device__ static void write_params(const typename Q::params& params, const part_of_slot& part, std::size_t block) {
        if constexpr (params_bytes<Q> != 0) {
            if (lane() != 0) return;
            typename Q::params stored = params;
            if constexpr (!Whole) {
                if (block >= part.layout.blocks) return;
                if (block * Q::block_size >= part.size) stored = typename Q::params{};
            }
            *reinterpret_cast<typename Q::params*>(part.message + part.layout.params_offset + block * params_bytes<Q>) =
                stored;
        }
    }

    /// Between the codes and the parameters, and behind the parameters.
    __device__ static void clear_padding(const part_of_slot& part) {
        const wire_layout<Q>& layout = part.layout;
        for (std::size_t i = code_bytes<Q>(layout.elements); i < layout.params_offset; ++i)
            part.message[i] = std::byte{0};
        for (std::size_t i = layout.params_offset + layout.blocks * params_bytes<Q>; i < layout.bytes; ++i) {
            part.message[i] = std::byte{0};
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

    static constexpr int rounds = rounds_for(Source::loads);
    static constexpr std::size_t unit_granules = std::size_t{rounds} * kernel_threads;
    static constexpr int resident_blocks = 3;

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
#pragma unroll
                    for (int r = 0; r != rounds; ++r) {
                        raw[r] = source.fetch_whole(slot, mine + static_cast<std::size_t>(r * kernel_threads));
                    }
#pragma unroll
                    for (int r = 0; r != rounds; ++r) {
                        T* const to = slice + (mine + static_cast<std::size_t>(r * kernel_threads)) * granule_size;
                        raw_granule<T> out;
                        if (last.accumulate) out = load_whole_granule(to, true);
                        finish_granule(raw[r], out);
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
    template <class Slot>
    __device__ void write_part(const Slot& slot, T* slice, bool aligned, std::size_t size, std::size_t granule) const {
        const int valid = valid_elements(size, granule);
        if (valid == 0) return;
        const typename Source::raw raw = source.fetch_part(slot, granule, valid);
        T* const to = slice + granule * granule_size;
        raw_granule<T> out;
        if (valid == granule_size) {
            if (last.accumulate) out = load_whole_granule(to, aligned);
            finish_granule(raw, out);
            store_whole_granule(to, out, aligned);
        } else {
            if (last.accumulate) out = load_part_granule(to, valid);
            finish_granule(raw, out);
            store_part_granule(to, out, valid);
        }
    }

    /// out <- the elements, added to what is there if asked for.
    __device__ void finish_granule(const typename Source::raw& raw, raw_granule<T>& out) const {
        float result[granule_size];
        if (exact_reciprocal != 0) {
#pragma unroll
            for (int i = 0; i != granule_size; ++i)
                result[i] = times_power_of_two(Source::value(raw, i), exact_reciprocal);
        } else {
#pragma unroll
            for (int i = 0; i != granule_size; ++i) result[i] = quotient(Source::value(raw, i), last.divisor);
        }
        if (last.accumulate) {
#pragma unroll
            for (int i = 0; i != granule_size; ++i) result[i] = element_traits<T>::to_float(out.at(i)) + result[i];
        }
#pragma unroll
        for (int i = 0; i != granule_size; ++i) out.set(i, element_traits<T>::from_float(result[i]));
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
