#pragma once
/// \file
/// The kernel that writes messages. It encodes elements of tensors, or sums of messages that it decodes. Bits equal the
/// host codec's: quantizer arithmetic and order of sums are equal.
///
/// A thread block encodes one tile of elements after the other. Each thread has several granules of a tile, and starts
/// their loads before it needs the first value. A tile that the shard's end cuts short goes block by block. So whole
/// tiles have neither bounds to check nor registers for them.

#include <zeropp/codec/cuda/granule_codec.cuh>
#include <zeropp/codec/cuda/message_section.cuh>
#include <zeropp/codec/cuda/message_values.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/codec/cuda/sum_source.cuh>
#include <zeropp/codec/cuda/tiles_ahead.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/math.hpp>

#include <cstddef>

namespace zeropp::detail {

/// Function object of a kernel: writes the messages of `where.slots` slots. A team of `lanes` neighbouring threads
/// shares a quantization block; a thread block has a whole number of teams. A quantization block too large for the
/// team's registers is read several times, all but the first from a cache.
///
/// Tiles of a list run across the tensors of a message: a tile with blocks of several tensors is encoded block by
/// block.
template <quantizer Q, class Source, class Residuals = kernel_residuals<none>, class Slices = slices>
struct encode_kernel {
    Q q;
    Source source;
    Slices where;
    std::byte* messages;
    Residuals residuals{};
    wire_layout<Q> layout{where.last_count(), where.last()};

    using values = message_values<Q, Source, Residuals>;

    static constexpr int block_granules = Q::block_size / granule_size;

    /// True if a thread takes `rows_ahead` granules of a tensor in a row, which are copied ahead. A window of 32
    /// elements then is rotated without exchanges between threads.
    static constexpr bool takes_rows = encodes_integers<Q> && rotating_quantizer<Q> && !Source::sums &&
                                       !Slices::is_list && !Residuals::any && block_granules >= rows_ahead &&
                                       block_granules <= rows_ahead * kernel_threads &&
                                       detail::tiles_ahead<Source, rows_ahead, rows_ahead>::possible;

    // Consecutive granules share bytes of ternary codes. So lanes take one granule in a row, and at least 16 lanes hold
    // a group of up to 128 codes (layout/ternary.hpp).
    using tile_shape = detail::tile_shape<values, block_granules,
                                          ternary_quantizer<Q> ? 1
                                          : takes_rows         ? rows_ahead
                                                               : Source::together,
                                          ternary_quantizer<Q> ? 16 : 8>;
    static constexpr int run = tile_shape::run;
    static constexpr bool stores_runs = run > 1 && granules_together<Q> > 1;
    static constexpr int granules_per_lane = tile_shape::granules_per_lane;
    static constexpr int lanes = tile_shape::lanes;
    static constexpr int teams = tile_shape::teams;
    static constexpr int team_blocks = tile_shape::team_blocks;
    static constexpr int tile_blocks = tile_shape::blocks;
    static constexpr int thread_granules = tile_shape::thread_granules;
    static constexpr std::size_t tile_granules = std::size_t{kernel_threads} * thread_granules;
    /// True if the registers of a team hold a whole quantization block, so that its elements are loaded once.
    static constexpr bool in_registers = granules_per_lane <= tile_shape::most_granules;
    using tiles_ahead = detail::tiles_ahead<Source, thread_granules, run>;
    /// True if threads request later tiles before they encode a tile (tiles_ahead.cuh). This helps sums where a
    /// multiprocessor has registers for two thread blocks. Of three thread blocks, one loads while the others compute,
    /// in fewer instructions.
    static constexpr bool loads_ahead = tiles_ahead::possible && in_registers &&
                                        resident_blocks_for(thread_granules * values::fragment_words) == 2 &&
                                        granules_at_once<values, run> >= thread_granules;
    static_assert(loads_ahead || !takes_rows);
    /// Number of 32-bit registers for the stats from which `Q` fits a block's parameters. One or two registers count as
    /// 0, because `resident_blocks_for` allows for them.
    static constexpr int stats_words =
        sizeof(typename Q::stats) > 8 ? static_cast<int>(sizeof(typename Q::stats) / 4) : 0;
    static constexpr int value_words =
        (in_registers ? team_blocks * granules_per_lane * values::fragment_words : values::fragment_words) +
        (team_blocks + 1) * stats_words + (values::fragment_is_raw ? 0 : Source::loaded_words) + Source::scratch_words +
        Residuals::scratch_words + (rotating_quantizer<Q> ? granule_size : 0);
    /// Number of thread blocks for which a multiprocessor must have registers. Two for lists, which need more registers
    /// to locate a block.
    static constexpr int resident_blocks = Slices::is_list ? 2 : resident_blocks_for(value_words);

    /// Number of tiles in the message of one slot.
    static constexpr std::size_t tiles(const Slices& w) {
        return ceil_div(wire_layout<Q>(w.last_count(), w.last()).blocks, static_cast<std::size_t>(tile_blocks));
    }

    __device__ void operator()() const {
        for (int s = static_cast<int>(blockIdx.y); s < where.slots; s += static_cast<int>(gridDim.y)) {
            std::byte* const message = messages + static_cast<std::size_t>(s) * layout.bytes;
            if (blockIdx.x == 0 && threadIdx.x == 0) clear_padding(layout, message);
            if constexpr (Slices::is_list && !windows_join_blocks) {
                encode_list(message, s);
            } else {
                // Each section begins with another thread block, so that small sections keep all thread blocks busy.
                for (std::size_t i = 0; i != where.sections(); ++i) {
                    const section_cursor part = open(message, where.at(i), i, s);
                    if constexpr (Slices::is_list) {
                        encode_section(part, part.blocks, (blockIdx.x + static_cast<unsigned>(i)) % gridDim.x);
                    } else {
                        encode_section(part, layout.blocks, blockIdx.x);
                    }
                }
            }
        }
    }

private:
    using fragment = typename values::fragment;
    using params = typename Q::params;
    using granule_codes = packed_codes<Q::code_bits>;

    /// One section of a message, and where its values and residuals lie.
    struct section_cursor : message_section<Q> {
        typename values::cursor from;
    };

    __device__ section_cursor open(std::byte* message, const section& of, std::size_t i, int s) const {
        return {message_section<Q>::of_message(layout, message, where, of, i, s),
                values::open(source, residuals, where, of, i, s)};
    }

    /// The rest of a section from granule number `granules` on (`moved` in sources.cuh), with the section's sizes.
    /// Requires a section without residuals.
    __device__ static section_cursor moved(const section_cursor& s, std::size_t granules) {
        return {s.message_section<Q>::moved(granules), {Source::moved(s.from.source, granules), s.from.residuals}};
    }

    /// True if values of a list are rotated back in windows that may span two tiles. Such a window is larger than a
    /// block of `Q`, and than the 32 elements to which tensors of a list are aligned.
    static constexpr bool windows_join_blocks = Source::rotation > Q::block_size&& Source::rotation >
                                                static_cast<int>(message_place::alignment);

    /// True if whole tiles are encoded by moved sections. In a list, tiles begin with any block of a section. Residuals
    /// need the registers that addresses of moved sections take.
    static constexpr bool moves = Source::moves && !ternary_quantizer<Q> && !Residuals::any &&
                                  (!Slices::is_list || Q::block_size % Source::block_size == 0);

    /// Encodes whole tiles of a section: number `tile`, then every `apart`-th before `end`. Tile 0 begins with granule
    /// number `start`. Returns the number of the next tile. All threads of the thread block must call this together.
    __device__ unsigned encode_whole(const section_cursor& part, std::size_t start, unsigned tile, unsigned end,
                                     unsigned apart) const {
        const section_cursor own = moves ? moved(moved(part, start), first_granule(team())) : part;
        const auto at_tile = [=](unsigned t) { return moves ? moved(own, t * tile_granules) : own; };
        const auto mine = [=](unsigned t) { return moves ? 0 : start + t * tile_granules + first_granule(team()); };
        if constexpr (loads_ahead) {
            __shared__ tiles_ahead ahead;
            constexpr unsigned more = tiles_ahead::tiles - 1;
            const auto request = [&](unsigned t, unsigned at) {
                if (t < end) ahead.request(source, at_tile(t).from.source, granules_from(mine(t)), at);
                group_copies();
            };
#pragma unroll
            for (unsigned at = 0; at != more; ++at) request(tile + at * apart, at);
            // Place `at` of shared memory has the tile to read next. Place `read` has the tile that was read before,
            // and so is free for the next request.
            for (unsigned at = 0, read = more; tile < end; tile += apart) {
                request(tile + more * apart, read);
                const section_cursor now = at_tile(tile);
                encode<team_blocks, true>(now, mine(tile), [&](auto granule, auto& raw) {
                    ahead.take(source, now.from.source, granule, at, raw);
                });
                read = at;
                at = at == more ? 0 : at + 1;
            }
        } else {
            for (; tile < end; tile += apart) encode<team_blocks, true>(at_tile(tile), mine(tile));
        }
        return tile;
    }

    /// Encodes `blocks` blocks of a section. This thread block takes tile number `tile`, then every gridDim.x-th one.
    /// All threads of the thread block must call this together.
    __device__ void encode_section(const section_cursor& part, std::size_t blocks, unsigned tile) const {
        const auto whole = static_cast<unsigned>(part.size / (tile_blocks * Q::block_size));
        tile = encode_whole(part, 0, tile, whole, gridDim.x);
        for (; std::size_t{tile} * tile_blocks < blocks; tile += gridDim.x) {
#pragma unroll 1
            for (int r = 0; r != team_blocks; ++r)
                encode<1, false>(part, tile * tile_granules + first_granule(r * teams + team()));
        }
    }

    /// Encodes the blocks of all tensors in the message of slot `s` of a list. This thread block takes tiles in a row.
    /// So it finds a tensor once for all its whole tiles. Where registers are short, it takes every gridDim.x-th tile.
    __device__ void encode_list(std::byte* message, int s) const {
        const std::size_t tiles = ceil_div(layout.blocks, static_cast<std::size_t>(tile_blocks));
        constexpr bool rows = Source::moves && !Residuals::any;
        const std::size_t apart = rows ? 1 : gridDim.x;
        const std::size_t end = rows ? tiles * (blockIdx.x + 1) / gridDim.x : tiles;
        for (std::size_t tile = rows ? tiles * blockIdx.x / gridDim.x : blockIdx.x; tile < end; tile += apart) {
            const std::size_t first = tile * tile_blocks;
            const std::size_t i = where.section_of(first, Q::block_size);
            const section of = where.at(i);
            const section_cursor part = open(message, of, i, s);
            const std::size_t before = first - of.place.blocks(Q::block_size);
            const std::size_t blocks = part.size / Q::block_size;
            const std::size_t in_section = blocks < before ? 0 : (blocks - before) / tile_blocks;
            if (in_section != 0) {
                const std::size_t in_row = in_section < end - tile ? in_section : end - tile;
                const unsigned whole = rows ? static_cast<unsigned>(in_row) : 1;
                encode_whole(part, before * block_granules, 0, whole, 1);
                tile += whole - 1;
                continue;
            }
#pragma unroll 1
            for (int r = 0; r != team_blocks; ++r) {
                const std::size_t block = first + static_cast<std::size_t>(r * teams + team());
                const std::size_t own = where.section_of(block, Q::block_size);
                const section of_own = where.at(own);
                encode<1, false>(open(message, of_own, own, s),
                                 (block - of_own.place.blocks(Q::block_size)) * block_granules + first_granule(0));
            }
        }
    }

    __device__ static int lane() { return static_cast<int>(threadIdx.x) % lanes; }
    __device__ static int team() { return static_cast<int>(threadIdx.x) / lanes; }

    /// Number of this lane's first granule in block number `block`.
    __device__ static std::size_t first_granule(int block) {
        return static_cast<std::size_t>(block * block_granules + lane() * run);
    }

    /// The function from n to the number of a thread's n-th granule in a tile, if the first has number `mine`.
    __device__ static auto granules_from(std::size_t mine) {
        return [=](std::size_t n) { return mine + tile_shape::granules_to(n); };
    }

    template <int Blocks, bool Whole>
    __device__ void encode(const section_cursor& part, std::size_t mine) const {
        encode<Blocks, Whole>(part, mine, [&](auto granule, auto& raw) {
            source.template fetch_whole<run>(part.from.source, granule, raw);
        });
    }

    /// Encodes `Blocks` blocks of a section for each team, from the block of granule `mine` on, this thread's first.
    /// `Whole`: the section has all their elements, and fetch_whole(granule, raw) loads them. All threads of the thread
    /// block must call this together.
    template <int Blocks, bool Whole, class FetchWhole>
    __device__ void encode(const section_cursor& part, std::size_t mine, FetchWhole fetch_whole) const {
        const auto granule = granules_from(mine);
        const auto block = [=](std::size_t r) { return mine / block_granules + r * teams; };
        typename Q::stats stats[std::size_t{Blocks}];
        fragment fragments[std::size_t{in_registers ? Blocks * granules_per_lane : 1}];
        // True if fragments lack the factor of the rotation, which ordinary steps of integers take with them.
        constexpr bool unscaled =
            Whole && in_registers && rotating_quantizer<Q> && encodes_integers<Q> && !Residuals::any;
        constexpr float factor = rotation_scale<rotation_size<Q>()>(false);
        if constexpr (in_registers) fetch<Whole, !unscaled>(part, granule, fragments, fetch_whole);
        // Calls use(n, index in the section, number of elements, fragment) for this thread's granules n of block r.
        const auto for_each_granule = [&](std::size_t r, auto use) {
#pragma unroll(tile_shape::most_granules)
            for (std::size_t n = r * granules_per_lane; n != (r + 1) * granules_per_lane; ++n) {
                if constexpr (!in_registers) {
                    fetch<Whole, true>(part, [=](std::size_t) { return granule(n); }, fragments, fetch_whole);
                }
                use(n, granule(n), Whole ? granule_size : valid_elements(part.size, granule(n)),
                    fragments[in_registers ? n : 0]);
            }
        };
#pragma unroll
        for (std::size_t r = 0; r != Blocks; ++r) {
            if constexpr (Whole && extremes<typename Q::stats>::decide) {
                extremes<typename Q::stats> found;
                for_each_granule(r, [&](std::size_t, std::size_t, int, const fragment& f) {
                    float x[granule_size];
                    values::of(f, x);
                    found.add(x);
                });
                found.for_each([&](float x) { stats[r].add(unscaled ? product(x, factor) : x); });
            } else {
                for_each_granule(r, [&](std::size_t, std::size_t, int valid, const fragment& f) {
                    values::for_each(f, valid, [&](float x) { stats[r].add(x); });
                });
            }
        }
        merge_stats<lanes>(stats);
        [[maybe_unused]] params best[std::size_t{Blocks}];
        if constexpr (refitting_quantizer<Q>) {
            typename Q::sums sums[std::size_t{Blocks}];
#pragma unroll
            for (std::size_t r = 0; r != Blocks; ++r) {
                best[r] = q.fit(stats[r]);
                for_each_granule(r, [&](std::size_t, std::size_t, int valid, const fragment& f) {
                    values::for_each(f, valid, [&](float x) { sums[r].add(x, best[r]); });
                });
            }
            merge_stats<lanes>(sums);
#pragma unroll
            for (std::size_t r = 0; r != Blocks; ++r) best[r] = q.refit(best[r], sums[r]);
        }
        [[maybe_unused]] typename Residuals::stats lost[std::size_t{Blocks}];
#pragma unroll
        for (std::size_t r = 0; r != Blocks; ++r) {
            if constexpr (!refitting_quantizer<Q>) best[r] = q.fit(stats[r]);
            float scale = 1.0f;
            if constexpr (unscaled) {
                if (is_ordinary(q.multiplier(best[r]))) {
                    scale = factor;
                } else {
                    for_each_granule(r, [&](std::size_t, std::size_t, int, fragment& f) { multiply(f.x, factor); });
                }
            }
            [[maybe_unused]] code_run<Q::code_bits, run> in_a_row{};
            for_each_granule(r, [&](std::size_t n, std::size_t number, int valid, fragment& f) {
                const granule_codes codes = encoded(f, best[r], part, number, valid, scale);
                if constexpr (Whole && stores_runs) {
                    in_a_row.set(static_cast<int>(n % run), codes);
                    if (n % run == run - 1) in_a_row.store(part.codes + (number - (run - 1)) * Q::code_bits);
                } else {
                    part.template store<Whole>(codes, number);
                }
                if constexpr (Residuals::any) {
                    lose(f, codes, best[r], part, number, valid);
#pragma unroll
                    for (int i = 0; i != granule_size; ++i) {
                        if (i < valid) lost[r].add(f.x[i]);
                    }
                }
            });
            if (lane() == 0) part.template store_params<Whole>(best[r], block(r));
        }
        if constexpr (Residuals::any) keep_lost<Blocks, Whole>(lost, best, part, block, for_each_granule);
    }

    /// Stores the new residuals of `Blocks` blocks: quantization errors for the next call to add. `lost` has the stats
    /// of this thread's residuals, `p` the parameters with which blocks were encoded. All threads of the thread block
    /// must call this together.
    template <int Blocks, bool Whole, class Block, class ForEachGranule>
    __device__ void keep_lost(typename Residuals::stats (&lost)[std::size_t{Blocks}],
                              const params (&p)[std::size_t{Blocks}], const section_cursor& part, Block block,
                              ForEachGranule for_each_granule) const {
        merge_stats<lanes>(lost);
#pragma unroll
        for (std::size_t r = 0; r != Blocks; ++r) {
            const auto fitted = residuals.fit(lost[r]);
            for_each_granule(r, [&](std::size_t, std::size_t number, int valid, fragment& f) {
                if constexpr (!in_registers) lose(f, encoded(f, p[r], part, number, valid), p[r], part, number, valid);
                residuals.store(part.from.residuals, number, valid, fitted, f.x);
            });
            // Other warps may still read the old parameters of this block's residuals, perhaps from the same address.
            if constexpr (!in_registers && Residuals::has_params) __syncthreads();
            // Other threads of this warp may still read the old parameters, perhaps from the same address.
            if constexpr (in_registers && Residuals::has_params) __syncwarp();
            if (lane() == 0 && (Whole || block(r) * Q::block_size < part.size)) {
                residuals.store_params(part.from.residuals, block(r) * block_granules, fitted);
            }
        }
    }

    /// Loads granule(n) into fragments[n], ready to encode; unless `Scaled`, without the factor of a rotation. All
    /// threads of the thread block must call this together.
    template <bool Whole, bool Scaled, class Granule, std::size_t N, class FetchWhole>
    __device__ void fetch(const section_cursor& part, Granule granule, fragment (&fragments)[N],
                          FetchWhole fetch_whole) const {
        values::template fetch<Whole, Scaled, lanes, granules_per_lane, run>(source, residuals, part.from, part.size,
                                                                             granule, fragments, fetch_whole);
    }

    /// Codes of the values `f` of granule `granule`, times `scale`, with its block's parameters `p`; zero from element
    /// `valid` on.
    __device__ granule_codes encoded(const fragment& f, const params& p, const section_cursor& part,
                                     std::size_t granule, int valid, float scale = 1.0f) const {
        float x[granule_size];
        values::of(f, x);
        if constexpr (stochastic_quantizer<Q>) {
            return encode_granule(q, x, p, valid, scale,
                                  noise_from(q, part.index + granule * granule_size, Source::sums));
        } else {
            return encode_granule(q, x, p, valid, scale);
        }
    }

    /// Replaces the values `f` of a granule by new residuals: value minus decoded code. A difference that is not finite
    /// becomes the old residual, or 0 if neither is finite.
    __device__ void lose(fragment& f, const granule_codes& codes, const params& p, const section_cursor& part,
                         std::size_t granule, int valid) const {
        decode_granule(q, codes, p, [&](int i, float x) { f.x[i] -= x; });
        residuals.mix(part.from.residuals, granule, valid, f.x);
    }
};

}  // namespace zeropp::detail
