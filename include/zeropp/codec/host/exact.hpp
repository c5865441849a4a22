#pragma once
/// \file
/// Encodes and decodes messages of exact differences on the host.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/exact.hpp>
#include <zeropp/codec/host/exact_block.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/exact_differences.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// Encodes a tile of n elements into `out`, with old elements at `old`. Returns the number of words, at most the tile's
/// room.
template <exact_element T, element S>
std::size_t encode_exact_tile(const S* tensor, const T* old, std::size_t n, std::byte* out) {
    constexpr std::size_t block = exact_differences::block_size;
    std::size_t end = 2 * ceil_div(n, block);
    int guess = exact_differences::whole / 2;
    for_each_piece_on_target<block, block>(n, [&](std::size_t begin, auto some) {
        std::byte* const header = out + begin / block * 2;
        if (some == block) {
            end += encode_exact_block(tensor + begin, old + begin, some, guess, header, out + end);
        } else {
            // A short block has no room for the bytes that are written behind it.
            std::byte bytes[2 * block + 8];
            const std::size_t size = encode_exact_block(tensor + begin, old + begin, some, guess, header, bytes);
            std::memcpy(out + end, bytes, size);
            end += size;
        }
    });
    const std::size_t words = ceil_div(end, exact_differences::word);
    std::memset(out + end, 0, words * exact_differences::word - end);
    return words;
}
/// Decodes a payload, from `in` to `end`, into the n elements of a tile at `to`. Returns false if it is none.
template <exact_element T>
bool decode_exact_tile(const std::byte* in, const std::byte* end, std::size_t n, T* to) {
    constexpr std::size_t block = exact_differences::block_size;
    const std::byte* const headers = in;
    if (static_cast<std::size_t>(end - in) < 2 * ceil_div(n, block)) return false;
    in += 2 * ceil_div(n, block);
    for_each_piece_on_target<block, block>(n, [&](std::size_t begin, auto some) {
        if (in != nullptr) in = decode_exact_block(headers + begin / block * 2, in, end, some, to + begin);
    });
    return in != nullptr && static_cast<std::size_t>(end - in) < exact_differences::word;
}

ZEROPP_DETAIL_INLINE_END

/// Index of a message of exact differences, in memory that need not be aligned.
template <class Byte>
struct exact_index {
    Byte* message;

    /// End of the payload of tile `tile`, in words from the end of the index.
    std::size_t end(std::size_t tile) const {
        return loaded_as<std::uint32_t>(message + tile * exact_differences::word);
    }
    /// Begin of the payload of tile `tile`, in words from the end of the index.
    std::size_t begin(std::size_t tile) const { return tile == 0 ? 0 : end(tile - 1); }
    void set_end(std::size_t tile, std::size_t to) const {
        const auto word = static_cast<std::uint32_t>(to);
        std::memcpy(message + tile * exact_differences::word, &word, sizeof word);
    }
};

/// Encodes the elements of the only slot of `where` in pieces, each at its part's room in `room`, divided among
/// `threads`. `size` gets the bytes of the message that the pieces make.
template <class Difference, class Slices>
void write_exact_slot(const Difference& source, const Slices& where, std::byte* room, std::uint64_t* size,
                      const host_threads* threads) {
    constexpr std::size_t tile_size = exact_differences::tile_size;
    constexpr std::size_t word = exact_differences::word;
    const exact_layout layout(where.last_count(), where.last());
    const exact_index<std::byte> index{room};
    std::atomic<std::size_t> words = layout.tiles;
    divide(threads, where, [&](const share& mine) {
        for_each_part(where, part_order::messages, mine, [&](const section_part& part) {
            if (part.count == 0) return;
            const auto of_tensor = tensor_at(source, where.tensor(part.i));
            const std::size_t offset = part.of.offset(where.in_memory(part.slot)) + part.first;
            const std::size_t tile = layout.tile_at(part.of.place, part.first);
            std::byte* const to = room + (layout.tiles + layout.room_at(part.of.place, part.first)) * word;
            std::size_t end = 0;
            for_each_piece<tile_size>(part.count, [&](std::size_t begin, std::size_t n) {
                end += encode_exact_tile(of_tensor.tensor + offset + begin, of_tensor.base + offset + begin, n,
                                         to + end * word);
                index.set_end(tile + begin / tile_size, end);
            });
            words += end;
        });
    });
    *size = words * word;
}

/// Puts the pieces of `write_exact_slot` in `room`, for the only slot of `where`, together as a message at `to`. Clears
/// the rest of the `bytes` bytes there.
template <class Slices>
void place_exact_slot(const Slices& where, const std::byte* room, std::byte* to, std::size_t bytes) {
    constexpr std::size_t tile_size = exact_differences::tile_size;
    constexpr std::size_t word = exact_differences::word;
    const exact_layout layout(where.last_count(), where.last());
    const exact_index<const std::byte> from{room};
    const exact_index<std::byte> index{to};
    std::size_t end = 0;
    std::size_t tiles = 0;
    const auto skip_to = [&](std::size_t tile) {
        for (; tiles != tile; ++tiles) index.set_end(tiles, end);
    };
    for_each_part(where, part_order::messages, share(), [&](const section_part& part) {
        if (part.count == 0) return;
        skip_to(layout.tile_at(part.of.place, part.first));
        const std::size_t part_end = tiles + ceil_div(part.count, tile_size);
        const std::size_t words = from.end(part_end - 1);
        std::memcpy(to + (layout.tiles + end) * word,
                    room + (layout.tiles + layout.room_at(part.of.place, part.first)) * word, words * word);
        for (; tiles != part_end; ++tiles) index.set_end(tiles, end + from.end(tiles));
        end += words;
    });
    skip_to(layout.tiles);
    std::memset(to + (layout.tiles + end) * word, 0, bytes - (layout.tiles + end) * word);
}

/// Decodes a message of exact differences for each slot of `where` into the elements of `base`, divided among
/// `threads`. Throws integrity_error, after all other messages, if the bytes of one are none.
template <class Slices, class Base>
void read_exact_slots(const std::byte* messages, std::size_t stride, const Slices& where, const Base& base,
                      const host_threads* threads) {
    constexpr std::size_t tile_size = exact_differences::tile_size;
    constexpr std::size_t word = exact_differences::word;
    const exact_layout layout(where.last_count(), where.last());
    std::atomic<int> wrong = where.slots;
    divide(threads, where, [&](const share& mine) {
        for_each_part(where, part_order::tensors, mine, [&](const section_part& part) {
            if (part.count == 0) return;
            const std::byte* const message = messages + static_cast<std::size_t>(part.slot) * stride;
            const exact_index<const std::byte> index{message};
            bool right = stride / word >= layout.tiles;
            const std::size_t most = right ? stride / word - layout.tiles : 0;
            // A message of no bytes may be null.
            const std::byte* const payloads = right ? message + layout.tiles * word : message;
            auto* const to =
                tensor_at(base, where.tensor(part.i)) + part.of.offset(where.in_memory(part.slot)) + part.first;
            const std::size_t tile = layout.tile_at(part.of.place, part.first);
            for (std::size_t begin = 0; right && begin < part.count; begin += tile_size) {
                const std::size_t from = index.begin(tile + begin / tile_size);
                const std::size_t end = index.end(tile + begin / tile_size);
                right = from <= end && end <= most &&
                        decode_exact_tile(payloads + from * word, payloads + end * word,
                                          std::min(tile_size, part.count - begin), to + begin);
            }
            for (int s = wrong; !right && part.slot < s && !wrong.compare_exchange_weak(s, part.slot);) {
            }
        });
    });
    if (const int s = wrong; s != where.slots) {
        const int source = where.rank(s);
        throw integrity_error("codec: expected exact differences in the message of rank " + std::to_string(source) +
                                  ", given other bytes",
                              source, -1);
    }
}

}  // namespace zeropp::detail
