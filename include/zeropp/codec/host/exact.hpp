#pragma once
/// \file
/// Encodes and decodes messages of exact differences on the host.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/exact.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/exact_differences.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// A value of type T that begins at `from`, which need not be aligned.
template <class T>
T loaded_as(const void* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

/// Codes of a block as they are packed: the codes of each four elements, the first in the lowest bits of a word, and
/// their number of bits, at most 56.
struct code_groups {
    static constexpr std::size_t most = exact_differences::block_size / 4;
    std::uint64_t codes[most];
    std::uint32_t bits[2 * most];
};

/// Number of entries of n that are not 0, for bytes of 0 or 1. Requires n to be at most 256.
template <class Size, class Is>
int count_if(Size n, const Is& is) {
    constexpr std::size_t lanes = 32;
    std::uint8_t counts[lanes] = {};
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        for (std::size_t k = 0; k != lanes; ++k) counts[k] = static_cast<std::uint8_t>(counts[k] + is(i + k));
    }
    for (std::size_t k = 0; i + k < n; ++k) counts[k] = static_cast<std::uint8_t>(counts[k] + is(i + k));
    // A byte holds the sum of four lanes; a 16-bit field holds that of all.
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k != lanes; k += 8) sum += loaded_as<std::uint64_t>(counts + k);
    constexpr std::uint64_t even_bytes = 0x00ff00ff00ff00ff;
    sum = (sum & even_bytes) + (sum >> 8 & even_bytes);
    return static_cast<int>(sum * 0x0001000100010001 >> 48);
}

/// bits[i] <- number of bits of the code of element i of n in a block of reach `reach`, and 0 up to a multiple of 4.
template <class Size>
void fill_code_bits(int reach, const std::uint8_t* exponents, Size n, std::uint16_t* bits) {
    const auto most = static_cast<std::uint8_t>(reach);
    for (std::size_t i = 0; i != n; ++i) {
        const auto above = static_cast<std::uint8_t>(std::max(exponents[i], most) - exponents[i]);
        bits[i] = std::min<std::uint8_t>(above, exact_differences::most_bits);
    }
    for (std::size_t i = n; i % 4 != 0; ++i) bits[i] = 0;
}

/// Encodes a block of n elements of type T, whose bits are `now` and whose old bits are at `old`, into `out`. Returns
/// the number of bytes, at most 2n; writes up to 7 bytes more.
template <exact_element T, class Size>
std::size_t encode_exact_block(const std::uint16_t* now, const T* old, Size n, std::byte* header, std::byte* out) {
    constexpr std::size_t block = exact_differences::block_size;
    alignas(64) std::uint16_t codes[block];
    alignas(64) std::uint16_t bits[block];
    alignas(64) std::uint8_t exponents[block];
    alignas(64) std::uint8_t needs[block];
    for (std::size_t i = 0; i != n; ++i) codes[i] = exact_code(now[i], loaded_as<std::uint16_t>(old + i));
    for (std::size_t i = 0; i != n; ++i) exponents[i] = exponent_of<T>(loaded_as<std::uint16_t>(old + i));
    for (std::size_t i = 0; i != n; ++i) needs[i] = reach_for(codes[i], exponents[i]);

    const auto exceptions_of = [&](int reach) {
        const auto most = static_cast<std::uint8_t>(reach);
        return count_if(n, [&](std::size_t i) { return needs[i] > most ? 1 : 0; });
    };
    const auto coded_by = [&](int reach) {
        const auto most = static_cast<std::uint8_t>(reach);
        return count_if(n, [&](std::size_t i) { return exponents[i] < most ? 1 : 0; });
    };
    const int changed = exceptions_of(0);
    int reach = 0;
    for (int above = exact_differences::whole; reach != above;) {
        const int middle = (reach + above) / 2;
        if (reaches(exceptions_of(middle), changed, coded_by(middle))) {
            above = middle;
        } else {
            reach = middle + 1;
        }
    }
    std::size_t bytes = 2 * n;
    int exceptions = 0;
    if (reach != exact_differences::whole) {
        const auto most = static_cast<std::uint8_t>(reach);
        fill_code_bits(reach, exponents, n, bits);
        for (std::size_t i = 0; i != n; ++i) codes[i] = needs[i] > most ? std::uint16_t{0} : codes[i];
        for (std::size_t i = n; i % 4 != 0; ++i) codes[i] = 0;
        const std::size_t groups = ceil_div(n, 4);
        code_groups packed;
        alignas(64) std::uint32_t pairs[block / 2];
        for (std::size_t i = 0; i != 2 * groups; ++i) {
            const auto two = loaded_as<std::uint32_t>(codes + 2 * i);
            const auto sizes = loaded_as<std::uint32_t>(bits + 2 * i);
            pairs[i] = (two & 0xffffu) | (two >> 16) << (sizes & 0xffffu);
            packed.bits[i] = (sizes & 0xffffu) + (sizes >> 16);
        }
        for (std::size_t i = 0; i != groups; ++i) {
            const auto two = loaded_as<std::uint64_t>(pairs + 2 * i);
            const auto sizes = loaded_as<std::uint64_t>(packed.bits + 2 * i);
            packed.codes[i] = (two & 0xffffffffu) | (two >> 32) << (sizes & 0xffffffffu);
        }
        std::byte* to = out;
        std::uint64_t word = 0;
        std::size_t used = 0;
        for (std::size_t i = 0; i != groups; ++i) {
            word |= packed.codes[i] << used;
            std::memcpy(to, &word, sizeof word);
            used += packed.bits[2 * i] + packed.bits[2 * i + 1];
            to += used / 8;
            word >>= used / 8 * 8;
            used %= 8;
        }
        to += used != 0 ? 1 : 0;
        exceptions = exceptions_of(reach);
        bytes = static_cast<std::size_t>(to - out) + static_cast<std::size_t>(exceptions) * 3;
        if (bytes < 2 * n) {
            for (std::size_t i = 0; i != n; ++i) {
                if (needs[i] <= most) continue;
                *to++ = static_cast<std::byte>(i);
                std::memcpy(to, now + i, 2);
                to += 2;
            }
        }
    }
    if (reach == exact_differences::whole || bytes >= 2 * n) {
        reach = exact_differences::whole;
        exceptions = 0;
        bytes = 2 * n;
        std::memcpy(out, now, bytes);
    }
    header[0] = static_cast<std::byte>(reach);
    header[1] = static_cast<std::byte>(exceptions);
    return bytes;
}

/// Decodes a block of n elements of type T from the bytes from `in` to `end`, in place of the old elements at `to`.
/// Returns the end of the block, or null if these bytes are no block of n elements.
template <exact_element T, class Size>
const std::byte* decode_exact_block(const std::byte* header, const std::byte* in, const std::byte* end, Size n, T* to) {
    constexpr std::size_t block = exact_differences::block_size;
    const int reach = static_cast<int>(header[0]);
    const auto exceptions = static_cast<std::size_t>(header[1]);
    const auto room = static_cast<std::size_t>(end - in);
    if (reach == exact_differences::whole) {
        if (exceptions != 0 || room < 2 * n) return nullptr;
        std::memcpy(static_cast<void*>(to), in, 2 * n);
        return in + 2 * n;
    }
    alignas(64) std::uint16_t bits[block];
    alignas(64) std::uint8_t exponents[block];
    for (std::size_t i = 0; i != n; ++i) exponents[i] = exponent_of<T>(loaded_as<std::uint16_t>(to + i));
    fill_code_bits(reach, exponents, n, bits);
    const std::size_t groups = ceil_div(n, 4);
    code_groups packed;
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i != 2 * groups; ++i) {
        const auto sizes = loaded_as<std::uint32_t>(bits + 2 * i);
        packed.bits[i] = (sizes & 0xffffu) + (sizes >> 16);
        sum += packed.bits[i];
    }
    const std::size_t code_bytes = ceil_div(sum, 8);
    if (code_bytes + exceptions * exact_differences::exception_bytes > room) return nullptr;
    const std::byte* from = in;
    // Words are loaded whole, so the last codes of a message are copied to where bytes follow.
    std::byte copy[block * exact_differences::most_bits / 8 + 8];
    if (room < code_bytes + 8) {
        std::memcpy(copy, in, code_bytes);
        std::memset(copy + code_bytes, 0, 8);
        from = copy;
    }
    std::size_t begin = 0;
    for (std::size_t i = 0; i != groups; ++i) {
        packed.codes[i] = loaded_as<std::uint64_t>(from + begin / 8) >> begin % 8;
        begin += packed.bits[2 * i] + packed.bits[2 * i + 1];
    }
    alignas(64) std::uint32_t pairs[block / 2];
    for (std::size_t i = 0; i != groups; ++i) {
        const std::uint64_t four = packed.codes[i];
        const std::uint64_t two = (four & 0xffffffffu) | (four >> packed.bits[2 * i]) << 32;
        std::memcpy(pairs + 2 * i, &two, sizeof two);
    }
    alignas(64) std::uint16_t codes[block];
    for (std::size_t i = 0; i != 2 * groups; ++i) {
        const auto sizes = loaded_as<std::uint32_t>(bits + 2 * i);
        const std::uint32_t lower = pairs[i] & ((1u << (sizes & 0xffffu)) - 1);
        const std::uint32_t upper = pairs[i] >> (sizes & 0xffffu) & ((1u << (sizes >> 16)) - 1);
        const std::uint32_t two = lower | upper << 16;
        std::memcpy(codes + 2 * i, &two, sizeof two);
    }
    for (std::size_t i = 0; i != n; ++i) {
        const std::uint16_t now = from_exact_code(codes[i], loaded_as<std::uint16_t>(to + i));
        std::memcpy(static_cast<void*>(to + i), &now, sizeof now);
    }
    in += code_bytes;
    int before = -1;
    for (std::size_t i = 0; i != exceptions; ++i, in += exact_differences::exception_bytes) {
        const int at = static_cast<int>(in[0]);
        if (at <= before || static_cast<std::size_t>(at) >= n) return nullptr;
        std::memcpy(static_cast<void*>(to + at), in + 1, 2);
        before = at;
    }
    return in;
}

/// Encodes a tile of n elements into `out`, with old elements at `old`. Returns the number of words. `out` needs room
/// for a tile's largest payload and 8 bytes more.
template <exact_element T, element S>
std::size_t encode_exact_tile(const S* tensor, const T* old, std::size_t n, std::byte* out) {
    constexpr std::size_t block = exact_differences::block_size;
    std::size_t end = 2 * ceil_div(n, block);
    for_each_piece_on_target<block, block>(n, [&](std::size_t begin, auto some) {
        alignas(64) std::uint16_t now[block];
        for (std::size_t i = 0; i != some; ++i) now[i] = exact_bits<T>(tensor[begin + i]);
        end += encode_exact_block(now, old + begin, some, out + begin / block * 2, out + end);
    });
    std::memset(out + end, 0, exact_differences::word - 1);
    return ceil_div(end, exact_differences::word);
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

/// Encodes the elements of the only slot of `where` into `message`, divided among `threads`; `size` gets its bytes.
template <class Difference, class Slices>
void write_exact_slot(const Difference& source, const Slices& where, std::byte* message, std::uint64_t* size,
                      const host_threads* threads) {
    constexpr std::size_t tile_size = exact_differences::tile_size;
    constexpr std::size_t word = exact_differences::word;
    const exact_layout layout(where.last_count(), where.last());
    const exact_index<std::byte> index{message};
    std::byte* const payloads = message + layout.tiles * word;
    // Each part's payloads lie at the part's room first, without gaps, and then move up to the part before.
    divide(threads, where, [&](const share& mine) {
        for_each_part(where, part_order::messages, mine, [&](const section_part& part) {
            if (part.count == 0) return;
            const auto of_tensor = tensor_at(source, where.tensor(part.i));
            const std::size_t offset = part.of.offset(where.in_memory(part.slot)) + part.first;
            const std::size_t tile = layout.tile_at(part.of.place, part.first);
            std::byte* const to = payloads + layout.room_at(part.of.place, part.first) * word;
            std::size_t end = 0;
            for_each_piece<tile_size>(part.count, [&](std::size_t begin, std::size_t n) {
                std::byte payload[tile_size * 2 + tile_size / exact_differences::block_size * 2 + 8];
                const std::size_t words =
                    encode_exact_tile(of_tensor.tensor + offset + begin, of_tensor.base + offset + begin, n, payload);
                std::memcpy(to + end * word, payload, words * word);
                end += words;
                index.set_end(tile + begin / tile_size, end);
            });
        });
    });
    std::size_t end = 0;
    std::size_t tiles = 0;
    const auto skip_to = [&](std::size_t tile) {
        for (; tiles != tile; ++tiles) index.set_end(tiles, end);
    };
    for_each_part(where, part_order::messages, share(), [&](const section_part& part) {
        if (part.count == 0) return;
        skip_to(layout.tile_at(part.of.place, part.first));
        const std::size_t part_end = tiles + ceil_div(part.count, tile_size);
        const std::size_t words = index.end(part_end - 1);
        std::memmove(payloads + end * word, payloads + layout.room_at(part.of.place, part.first) * word, words * word);
        for (; tiles != part_end; ++tiles) index.set_end(tiles, end + index.end(tiles));
        end += words;
    });
    skip_to(layout.tiles);
    *size = (layout.tiles + end) * word;
}

/// Decodes a message of exact differences for each slot of `where` into the elements of `base`, divided among
/// `threads`. Throws integrity_error, after all other messages, if the bytes of one are none.
template <class Slices, class Base>
void read_exact_slots(const std::byte* messages, std::size_t stride, const std::uint64_t* sizes, const Slices& where,
                      const Base& base, const host_threads* threads) {
    constexpr std::size_t tile_size = exact_differences::tile_size;
    constexpr std::size_t word = exact_differences::word;
    const exact_layout layout(where.last_count(), where.last());
    std::atomic<int> wrong = where.slots;
    divide(threads, where, [&](const share& mine) {
        for_each_part(where, part_order::tensors, mine, [&](const section_part& part) {
            if (part.count == 0) return;
            const std::byte* const message = messages + static_cast<std::size_t>(part.slot) * stride;
            const std::uint64_t size = sizes[part.slot];
            bool right = size % word == 0 && size <= stride && size / word >= layout.tiles;
            const exact_index<const std::byte> index{message};
            const std::byte* const payloads = message + layout.tiles * word;
            right = right && index.end(layout.tiles - 1) == size / word - layout.tiles;
            auto* const to =
                tensor_at(base, where.tensor(part.i)) + part.of.offset(where.in_memory(part.slot)) + part.first;
            const std::size_t tile = layout.tile_at(part.of.place, part.first);
            for (std::size_t begin = 0; right && begin < part.count; begin += tile_size) {
                const std::size_t from = index.begin(tile + begin / tile_size);
                const std::size_t end = index.end(tile + begin / tile_size);
                right = from <= end && end <= size / word - layout.tiles &&
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
