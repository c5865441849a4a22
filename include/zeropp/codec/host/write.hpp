#pragma once
/// \file
/// Writes messages on the host, from tensors or from sums of messages.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/residuals.hpp>
#include <zeropp/codec/host/rotation.hpp>
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
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// Encodes values [first, first + size) of a section of a source, rotated if Q rotates, plus residuals. `first` begins
/// a block and a tile. The `encoded_elements` begin with the section.
template <quantizer Q, class Section, class Residuals>
void write_section(const Q& q, const Section& source, const Residuals& residuals, std::size_t first, std::size_t size,
                   encoded_elements what, const coded<std::byte>& to) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    static_assert(Residuals::block_size <= std::max<std::size_t>(block_size, 1024),
                  "feedback: the blocks of Storage must not be larger than 1024 elements or the quantizer's");
    using element_type = std::remove_const_t<std::remove_pointer_t<Section>>;
    constexpr bool as_they_lie = !Residuals::any && encodes_in_vectors<Q, element_type>();
    // A stretch holds all blocks that are encoded together; a tile holds whole blocks of residuals, each of which is
    // stored at once.
    constexpr std::size_t blocks = as_they_lie ? std::max(stretch_blocks<Q>, blocks_together) : stretch_blocks<Q>;
    constexpr std::size_t stretch = blocks * block_size;
    constexpr std::size_t piece = std::max({block_size, piece_size, Residuals::block_size});
    alignas(64) float buffer[stretch];
    std::array<typename Q::params, blocks> params;
    for_each_piece_on_target<stretch, piece>(size, [&](std::size_t stretches, auto n) {
        const std::size_t begin = first + stretches;
        if constexpr (as_they_lie && on_avx512<decltype(n), block_size>) {
            if (n % (blocks_together * block_size) == 0) return encode_in_vectors(q, source, begin, n, to);
        }
        // Loads and fits tile by tile. Compilers merge both into one pass, which reads memory while it computes.
        const float* x = nullptr;
        for_each_piece<piece>(n, [&](std::size_t done, auto some) {
            const float* values = floats_of(source, begin + done, some, buffer + done);
            if constexpr (rotating_quantizer<Q> || Residuals::any) {
                rotate<Q>(values, some, false, buffer + done);
                values = buffer + done;
            }
            if constexpr (Residuals::any) residuals.add(begin + done, some, buffer + done);
            fit_blocks(q, values, some, params.data() + done / block_size);
            if (done == 0) x = values;
        });
        encode_blocks(q, params.data(), x, n, what, to, begin);
        if constexpr (Residuals::any) {
            decode_elements(q, to, begin, n, [&](std::size_t i, float decoded) { buffer[i] -= decoded; });
            residuals.keep(begin, n, buffer);
        }
    });
}

ZEROPP_DETAIL_INLINE_END

/// Clears the rest of section i's codes and parameters, behind `size` elements, and the padding behind the last
/// section.
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

/// Writes the slots of `where`, divided among `threads`. Knows no execution, so that host executions share its
/// instances.
template <quantizer Q, class Source, class Slices, class Residuals>
void write_slots(const Q& q, const Source& source, const Slices& where, std::byte* messages, const Residuals& residuals,
                 const host_threads* threads) {
    const wire_layout<Q> layout(where.last_count(), where.last());
    constexpr bool sums = is_message_sum<Source>;
    // In the order in which the source lies in memory.
    constexpr part_order order = sums ? part_order::messages : part_order::tensors;
    for_each_part(threads, where, order, [&](const section_part& part) {
        std::byte* const message = messages + static_cast<std::size_t>(part.slot) * layout.bytes;
        const coded<std::byte> to(layout, part.of.place, message);
        if (part.count != 0) {
            write_section(q, section_in(source, where, part), section_residuals<Residuals>(residuals, part), part.first,
                          part.count, {where.index(part.of, part.slot), sums}, to);
        }
        if (part.last) clear_rest(layout, where, part.i, part.first + part.count, to, message);
    });
}

}  // namespace zeropp::detail
