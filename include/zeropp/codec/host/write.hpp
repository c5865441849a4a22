#pragma once
/// \file
/// Writes messages on the host, from tensors or from sums of messages.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/residuals.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/sixteen_bits.hpp>
#include <zeropp/codec/host/sources.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// True if `Values` are 16-bit elements of a tensor, not rotated and without residuals, that AVX-512 can encode for Q.
template <quantizer Q, class Values>
inline constexpr bool encodes_as_they_lie = [] {
    using load = decltype(Values::load);
    constexpr bool plain = !decltype(Values::residuals)::any && !rotating_quantizer<Q>;
    constexpr bool as_they_lie =
        std::is_same_v<load, tensor_elements<bfloat16>> || std::is_same_v<load, tensor_elements<half>>;
    constexpr int unit = Q::code_bits == 8 ? 64 : Q::code_bits == 4 ? 128 : 0;
    if constexpr (unit != 0 && integer_quantizer<Q> && !refitting_quantizer<Q> && !stochastic_quantizer<Q>) {
        // `avx512::encode_integers` clamps to the largest integer of `code_bits` bits, so that must be `highest_code`.
        constexpr bool bounded = !Q::reaches_above || Q::highest_code == (1 << (Q::code_bits - 1)) - 1;
        return plain && as_they_lie && bounded && has_wide_targets && Q::block_size % unit == 0 && Q::block_size <= 256;
    } else {
        return false;
    }
}();

/// Encodes n values of a section, from `begin` on, and fits their blocks, straight from a tensor's 16-bit elements.
/// Works in loops compiled for AVX-512, if Q allows that (`encodes_as_they_lie`) and n is a multiple of
/// `blocks_together` blocks. Otherwise returns false, with nothing done.
template <quantizer Q, class Values, class Size>
bool encode_as_they_lie([[maybe_unused]] const Q& q, [[maybe_unused]] const Values& values,
                        [[maybe_unused]] std::size_t begin, [[maybe_unused]] Size n,
                        [[maybe_unused]] typename Q::params* params, [[maybe_unused]] std::byte* codes) {
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    if constexpr (encodes_as_they_lie<Q, Values> && avx512::serves<Size, block_size>) {
        constexpr std::size_t group = blocks_together * block_size;
        if (n % group != 0) return false;
        const auto* const elements = values.load.first + begin;
        for (std::size_t first = 0; first != n; first += group) {
            avx512::extremes found[blocks_together];
            avx512::find_extremes(elements + first, block_size, found);
            for (std::size_t b = 0; b != blocks_together; ++b) {
                typename Q::stats stats;
                stats.add(found[b].above);
                stats.add(found[b].below);
                params[first / block_size + b] = q.fit(stats);
            }
        }
        for (std::size_t first = 0; first != n; first += block_size) {
            const float step = q.multiplier(params[first / block_size]);
            std::byte* const to = codes + code_bytes<Q>(first);
            if (is_finite(step)) {
                const float factor = step != 0 ? quotient(1.0f, step) : 0.0f;
                avx512::encode_integers<Q::code_bits, Q::reaches_above>(elements + first, block_size, factor, to);
            } else {
                std::memset(to, 0, code_bytes<Q>(block_size));
            }
        }
        return true;
    }
#endif
    return false;
}

/// Encodes values [first, first + size) of a section into `to`. The index for noise is the index of the section's first
/// element. Requires `first` to begin a block and a tile.
template <quantizer Q, class Values>
void write_section(const Q& q, const Values& values, std::size_t first, std::size_t size, encoded_elements what,
                   const coded<std::byte>& to) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    // The blocks of a stretch are fitted before the first of them is encoded.
    constexpr std::size_t blocks =
        encodes_as_they_lie<Q, Values> ? std::max(stretch_blocks<Q>, blocks_together) : stretch_blocks<Q>;
    constexpr std::size_t stretch = blocks * block_size;
    using residuals_type = decltype(values.residuals);
    static_assert(residuals_type::block_size <= std::max<std::size_t>(block_size, 1024),
                  "feedback: the blocks of Storage must not be larger than 1024 elements or the quantizer's");
    // A tile holds whole blocks, of residuals too, because a block of residuals is stored at once.
    constexpr std::size_t piece = std::max({piece_size, block_size, residuals_type::block_size});
    alignas(64) float buffer[stretch];
    std::array<typename Q::params, blocks> params;
    for_each_piece_on_target<stretch, piece>(size, [&](std::size_t stretches, auto n) {
        const std::size_t begin = first + stretches;
        std::byte* const codes = to.codes + code_bytes<Q>(begin);
        if (!encode_as_they_lie(q, values, begin, n, params.data(), codes)) {
            // Loads and fits tile by tile. Compilers merge loading and fitting, so that memory is read while they
            // compute.
            const float* x = nullptr;
            for_each_piece<piece>(n, [&](std::size_t done, auto some) {
                const float* const prepared = values(begin + done, some, buffer + done);
                fit_blocks(q, prepared, some, params.data() + done / block_size);
                if (done == 0) x = prepared;
            });
            refit_blocks(q, x, n, params.data());
            encode_blocks(q, params.data(), x, n, {what.index + begin, what.sums}, codes);
        }
        if constexpr (params_bytes<Q> != 0) {
            std::memcpy(to.params + begin / block_size * params_bytes<Q>, params.data(),
                        ceil_div(n, block_size) * params_bytes<Q>);
        }
        if constexpr (residuals_type::any) {
            decode_elements(q, to, begin, n, [&](std::size_t i, float decoded) { buffer[i] -= decoded; });
            values.residuals.keep(begin, n, buffer);
        }
    });
}

ZEROPP_DETAIL_INLINE_END

/// Clears the codes and parameters of the section of index i behind its `size` elements, up to the next section. Behind
/// the last section, clears the message's padding too.
template <quantizer Q, class Slices>
void clear_rest(const wire_layout<Q>& layout, const Slices& where, std::size_t i, std::size_t size,
                const coded<std::byte>& section, std::byte* message) {
    const bool last = i + 1 == where.sections();
    constexpr std::size_t block_size = wire_layout<Q>::block_size;
    const std::size_t blocks_end = where.blocks_end(i, block_size);
    const std::size_t codes_end = last ? layout.params_offset : layout.codes_of(where.elements_end(i), blocks_end);
    const std::size_t params_end = last ? layout.params_end : layout.params_offset + blocks_end * params_bytes<Q>;
    std::fill(section.codes + code_bytes<Q>(size), message + codes_end, std::byte{0});
    std::fill(section.params + ceil_div(size, block_size) * params_bytes<Q>, message + params_end, std::byte{0});
    if (last) std::fill(message + layout.params_end, message + layout.bytes, std::byte{0});
}

/// True if the codes of Q are the elements that `Load` loads from a tensor, unchanged.
template <quantizer Q, class Load>
inline constexpr bool loads_codes = false;
template <quantizer Q, element T>
inline constexpr bool loads_codes<Q, tensor_elements<T>> = stores_elements<Q, T>;

/// Encodes `source` into the messages of the slots of `where`, divided among `threads`. The type of the execution is no
/// template parameter, so all host executions share one function.
template <quantizer Q, class Source, class Slices, class Residuals>
void write_slots(const Q& q, const Source& source, const Slices& where, std::byte* messages, Residuals residuals,
                 const host_threads* threads) {
    const auto layout = layout_of<Q>(where);
    const auto open = opener(source, where);
    using residuals_of = section_residuals<Residuals>;
    constexpr bool sums = is_message_sum<Source>;
    divide(threads, where, [&](const share& mine) {
        // Visits parts in the order in which the source lies in memory.
        for_each_part(where, sums ? part_order::messages : part_order::tensors, mine, [&](const section_part& part) {
            std::byte* const message = message_at(messages, part.slot, layout.bytes);
            const coded<std::byte> to(layout, part.of.place, message);
            if (part.count != 0) {
                auto load = open(part.of, part.i, part.slot);
                const section_values<Q, decltype(load), residuals_of> values{
                    load, residuals_of(residuals, part.of, part.slot)};
                if constexpr (loads_codes<Q, decltype(load)> && !residuals_of::any) {
                    std::memcpy(to.codes + code_bytes<Q>(part.first), load.first + part.first,
                                code_bytes<Q>(part.count));
                } else {
                    write_section(q, values, part.first, part.count, {where.index(part.of, part.slot), sums}, to);
                }
            }
            if (part.last) clear_rest(layout, where, part.i, part.first + part.count, to, message);
        });
    });
}

}  // namespace zeropp::detail
