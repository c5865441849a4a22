#pragma once
/// \file
/// The kernel that writes messages: encode and reorder + encode from a tensor, decode + sum + encode from messages.
/// Bit-identical to the host codec: the same quantizer arithmetic, the same order of sums.
///
/// A thread block takes one unit of work after the other: so many whole granules for each thread, all of whose loads
/// start before the first value is needed. A unit that the slice's end cuts short goes granule by granule, so that the
/// ordinary one has neither bounds to check nor registers to check them with.

#include <zeropp/codec/cuda/merge_stats.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/math.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

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
    /// Registers of a granule's values, and how many granules a thread can hold, and has under way.
    static constexpr int kept_words = static_cast<int>(sizeof(typename Source::kept) / 4);
    static constexpr bool kept_as_loaded = std::is_same_v<typename Source::kept, typename Source::raw>;
    static constexpr int most_held = granules_held(kept_words);
    static constexpr int at_once =
        granules_at_once(Source::loaded_bytes, Source::loaded_words + (kept_as_loaded ? 0 : kept_words));
    /// Granules of its block that a thread takes.
    static constexpr int share = lane_granules(block_granules, at_once, most_held);
    static constexpr bool held = share <= most_held;
    static constexpr int lanes = block_granules / share;
    static constexpr int teams = kernel_threads / lanes;
    static constexpr int rounds = share < at_once ? at_once / share : 1;
    static constexpr int unit_blocks = teams * rounds;
    static constexpr int resident_blocks =
        resident_blocks_for((held ? rounds * share * kept_words : kept_words) +
                            (kept_as_loaded ? 0 : Source::loaded_words) + Source::scratch_words);

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
        const std::size_t mine = first * block_granules + static_cast<std::size_t>(team() * block_granules + lane());
        const auto granule = [=](std::size_t n) {
            return mine + n / share * teams * block_granules + n % share * lanes;
        };
        typename Q::stats stats[std::size_t{Rounds}];
        typename Source::kept kept[std::size_t{held ? Rounds * share : 1}];
        if constexpr (held) fetch<Whole>(slot, part, granule, kept);
#pragma unroll
        for (std::size_t r = 0; r != Rounds; ++r) {
#pragma unroll(most_held)
            for (std::size_t n = r * share; n != (r + 1) * share; ++n) {
                if constexpr (!held)
                    fetch<Whole>(
                        slot, part, [=](std::size_t) { return granule(n); }, kept);
                add<Whole>(stats[r], kept[held ? n : 0], part, granule(n));
            }
        }
        merge_stats<lanes>(stats);
#pragma unroll
        for (std::size_t r = 0; r != Rounds; ++r) {
            const typename Q::params params = q.fit(stats[r]);
#pragma unroll(most_held)
            for (std::size_t n = r * share; n != (r + 1) * share; ++n) {
                if constexpr (!held)
                    fetch<Whole>(
                        slot, part, [=](std::size_t) { return granule(n); }, kept);
                write<Whole>(kept[held ? n : 0], params, part, granule(n));
            }
            write_params<Whole>(params, part, first + r * teams + static_cast<std::size_t>(team()));
        }
    }

    /// kept[n] <- granule(n).
    template <bool Whole, class Slot, class Granule, std::size_t N>
    __device__ void fetch(const Slot& slot, const part_of_slot& part, Granule granule,
                          typename Source::kept (&kept)[N]) const {
        if constexpr (Whole) {
            typename Source::raw raw[N];
            source.fetch_whole(slot, granule, raw);
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) kept[n] = source.keep(raw[n]);
        } else {
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) {
                kept[n] = source.keep(source.fetch_part(slot, granule(n), valid_elements(part.size, granule(n))));
            }
        }
    }

    template <bool Whole>
    __device__ static void add(typename Q::stats& stats, const typename Source::kept& kept, const part_of_slot& part,
                               std::size_t granule) {
        const int valid = Whole ? granule_size : valid_elements(part.size, granule);
        float x[granule_size];
        Source::values(kept, x);
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            if (Whole || i < valid) stats.add(x[i]);
        }
    }

    template <bool Whole>
    __device__ void write(const typename Source::kept& kept, const typename Q::params& params, const part_of_slot& part,
                          std::size_t granule) const {
        const int valid = Whole ? granule_size : valid_elements(part.size, granule);
        const int nominal = Whole ? granule_size : valid_elements(part.layout.elements, granule);
        if (nominal == 0) return;
        float x[granule_size];
        Source::values(kept, x);
        std::uint32_t codes[granule_size];
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            codes[i] = q.encode(x[i], params);
            if (i >= valid) codes[i] = 0;
        }
        store_codes<Q::code_bits>(part.message + granule * Q::code_bits, packed_codes<Q::code_bits>::of(codes),
                                  nominal);
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

}  // namespace zeropp::detail
