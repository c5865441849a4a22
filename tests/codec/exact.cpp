#include <zeropp/codec/exact.hpp>

#include <zeropp/codec/host.hpp>
#include <zeropp/codec/host/exact.hpp>
#include <zeropp/codec/host/exact_block.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/topology/flat.hpp>

#include "support/catch.hpp"
#include "support/exact_reader.hpp"
#include "support/guarded.hpp"
#include "support/host_targets.hpp"
#include "support/samples.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::bfloat16;
using zeropp::codec;
using zeropp::half;
using zeropp::host;
using zeropp::host_threads;
constexpr zeropp::message_format exact_format = zeropp::format_of<zeropp::exact_differences>;

template <class T>
constexpr int mantissa_bits = std::is_same_v<T, half> ? 10 : 7;

template <class T>
const T* as(const bits_of_elements& bits) {
    return reinterpret_cast<const T*>(bits.data());
}

/// The message of `tensor`.
template <class T, class S, class Execution>
std::vector<std::byte> encoded(const Execution& exec, const S* tensor, const bits_of_elements& old) {
    const auto where = zeropp::slices::single(old.size(), 0, old.size());
    guarded<std::byte> room(exact_format.bytes(old.size()), 0x5a, 1);
    std::uint64_t size = ~std::uint64_t{0};
    codec<Execution>::write_exact(exec, zeropp::difference{tensor, as<T>(old)}, where, room.data(), &size);
    REQUIRE(room.intact());
    REQUIRE(size <= room.size());
    guarded<std::byte> message(size + 3, 0x5a, 1);
    codec<Execution>::place_exact(exec, where, room.data(), message.data(), message.size());
    REQUIRE(message.intact());
    std::vector<std::byte> bytes = message.values();
    REQUIRE(std::all_of(bytes.end() - 3, bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
    bytes.resize(size);
    return bytes;
}

/// Decodes a message in place of `old`. The message lies in an allocation of its exact size, which AddressSanitizer
/// watches.
template <class T, class Execution>
bits_of_elements decoded(const Execution& exec, const std::vector<std::byte>& message, const bits_of_elements& old) {
    const auto where = zeropp::slices::single(old.size(), 0, old.size());
    const std::vector<std::byte> exactly(message);
    guarded<T> base(std::vector<T>(as<T>(old), as<T>(old) + old.size()), 0x77);
    const auto read = [&] { codec<Execution>::read_exact(exec, exactly.data(), message.size(), where, base.data()); };
    try {
        read();
    } catch (const zeropp::integrity_error&) {
        REQUIRE(base.intact());
        throw;
    }
    REQUIRE(base.intact());
    bits_of_elements bits(old.size());
    if (!bits.empty()) std::memcpy(bits.data(), base.data(), 2 * bits.size());
    return bits;
}

/// Checks the message of new elements `now` against the plain reader and the codec's own.
template <class T>
std::vector<std::byte> check(const bits_of_elements& now, const bits_of_elements& old) {
    const std::vector<std::byte> message = encoded<T>(host(), as<T>(now), old);
    const std::size_t tiles = zeropp::ceil_div(old.size(), 4096);
    exact_reader plain(message);
    REQUIRE(4 * (tiles + (tiles == 0 ? 0 : plain.word(tiles - 1))) == message.size());
    REQUIRE(plain.elements(0, tiles, old, mantissa_bits<T>) == now);
    REQUIRE(plain.padded_with_zeros());
    REQUIRE(decoded<T>(host(), message, old) == now);
    return message;
}

enum class change { none, few, small, mixed, all };

/// n old elements as trained weights have them, and new ones.
struct sample {
    bits_of_elements old;
    bits_of_elements now;

    sample(std::size_t n, change how, std::uint32_t seed) : old(n), now(n) {
        random_source draw(seed);
        const auto weight = [&] { return 0.02f * static_cast<float>(draw.normal()); };
        for (std::size_t i = 0; i != n; ++i) {
            const float x = weight();
            old[i] = bfloat16(x).bits;
            const bool block_of_all = how == change::all || (how == change::mixed && i / 256 % 3 == 1);
            const bool changes =
                how == change::small || how == change::mixed || (how == change::few && draw.below(50) == 0);
            now[i] = block_of_all ? static_cast<std::uint16_t>(draw.next())
                                  : bfloat16(changes ? x + 0.01f * weight() : x).bits;
        }
    }
};

constexpr change changes[] = {change::none, change::few, change::small, change::mixed, change::all};

}  // namespace

TEST_CASE("exact differences carry every old element to every new one", "[codec][exact]") {
    bits_of_elements values;
    // Zeros, denormals, ends of both exponents' ranges, infinities and NaN of both types, with both signs.
    for (const int bits :
         {0,      1,      2,      0x7f,   0x80,   0x81,   0x3ff,  0x400,  0x401,  0x3c00, 0x3f80, 0x4000,
          0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7f7f, 0x7f80, 0x7f81, 0x7fc0, 0x7fc1, 0x7ffe, 0x7fff}) {
        values.push_back(static_cast<std::uint16_t>(bits));
        values.push_back(static_cast<std::uint16_t>(bits | 0x8000));
    }
    bits_of_elements old;
    bits_of_elements now;
    for (const std::uint16_t a : values) {
        for (const std::uint16_t b : values) {
            old.push_back(a);
            now.push_back(b);
        }
    }
    check<bfloat16>(now, old);
    check<half>(now, old);
    // Each change in a block in which nothing else changes: as a code, or as an exception.
    for (const std::uint16_t a : values) {
        bits_of_elements one(values);
        for (const std::uint16_t b : values) {
            one[7] = b;
            bits_of_elements before(values);
            before[7] = a;
            check<bfloat16>(one, before);
        }
    }
    for (unsigned bits = 0; bits != 0x10000; ++bits) {
        const auto b = static_cast<std::uint16_t>(bits);
        for (const std::uint16_t a : values) {
            const std::uint16_t code = zeropp::detail::exact_code(b, a);
            if ((code == 0) != (a == b) || zeropp::detail::from_exact_code(code, a) != b) FAIL(a << " to " << b);
        }
    }
}

TEST_CASE("exact differences of any number of elements, on all targets and threads", "[codec][exact]") {
    const host_threads threads(3);
    std::uint32_t seed = 1;
    for (const std::size_t n : {0u, 1u, 2u, 7u, 8u, 9u, 31u, 255u, 256u, 257u, 4095u, 4096u, 4097u, 140001u}) {
        for (const change how : changes) {
            CAPTURE(n, static_cast<int>(how));
            const sample s(n, how, ++seed);
            const std::vector<std::byte> message = check<bfloat16>(s.now, s.old);
            on_every_target([&] {
                REQUIRE(encoded<bfloat16>(host(), as<bfloat16>(s.now), s.old) == message);
                REQUIRE(decoded<bfloat16>(host(), message, s.old) == s.now);
            });
            REQUIRE(encoded<bfloat16>(threads, as<bfloat16>(s.now), s.old) == message);
            REQUIRE(decoded<bfloat16>(threads, message, s.old) == s.now);
            check<half>(s.now, s.old);
        }
    }
}

TEST_CASE("exact differences take few bytes for few changes, and at most a hundredth more than elements",
          "[codec][exact]") {
    constexpr std::size_t n = 1 << 20;
    const auto bits_a_weight = [&](change how) {
        const sample s(n, how, 5);
        return 8.0 * static_cast<double>(encoded<bfloat16>(host(), as<bfloat16>(s.now), s.old).size()) /
               static_cast<double>(n);
    };
    // A word of index for each tile, and two bytes of header for each block.
    REQUIRE(bits_a_weight(change::none) == 32.0 / 4096 + 16.0 / 256);
    REQUIRE(bits_a_weight(change::few) < 0.7);
    REQUIRE(bits_a_weight(change::small) < 5);
    REQUIRE(bits_a_weight(change::all) <= 16 * 1.01);
    REQUIRE(exact_format.bytes(n) <= n / 100 * 202);
    REQUIRE(exact_format.block_size == 4096);
    REQUIRE(zeropp::exact_differences::name() == zeropp::short_text("exact"));
}

TEST_CASE("exact differences of float weights are of the rounded weights", "[codec][exact]") {
    const sample s(5000, change::small, 9);
    std::vector<float> masters(s.now.size());
    for (std::size_t i = 0; i != masters.size(); ++i) {
        // A little away from the rounded element, but nearer to that than to its neighbours.
        masters[i] = static_cast<float>(bfloat16::from_bits(s.now[i])) * (i % 2 == 0 ? 1.001f : 0.9995f);
    }
    masters[17] = std::numeric_limits<float>::quiet_NaN();
    masters[300] = -std::numeric_limits<float>::infinity();
    bits_of_elements rounded(masters.size());
    for (std::size_t i = 0; i != masters.size(); ++i) rounded[i] = bfloat16(masters[i]).bits;
    on_every_target([&] {
        REQUIRE(encoded<bfloat16>(host(), masters.data(), s.old) ==
                encoded<bfloat16>(host(), as<bfloat16>(rounded), s.old));
    });
}

TEST_CASE("exact differences of lists, chunks and slots", "[codec][exact]") {
    constexpr int ranks = 3;
    const host exec;
    const zeropp::flat topology(ranks);
    std::vector<bits_of_elements> now;
    std::vector<bits_of_elements> old;
    std::uint32_t seed = 40;
    for (const std::size_t n : {100u, 0u, 3u * 4096, 30000u, 1u, 2u, 3u * 256 + 1, 20011u}) {
        const sample s(n, changes[seed % 5], seed);
        now.push_back(s.now);
        old.push_back(s.old);
        ++seed;
    }
    const auto views = [](std::vector<bits_of_elements>& of) {
        std::vector<zeropp::list_tensor<bfloat16, zeropp::host_space>> spans;
        for (bits_of_elements& bits : of)
            spans.push_back(std::span(reinterpret_cast<bfloat16*>(bits.data()), bits.size()));
        return spans;
    };
    auto news = views(now);
    for (const int wanted : {1, 2, 7, 100}) {
        CAPTURE(wanted);
        std::vector<bits_of_elements> base(old);
        auto bases = views(base);
        const zeropp::tensor_list<bfloat16> new_list(topology, std::span(std::as_const(news)));
        const zeropp::tensor_list<bfloat16> base_list(topology, std::span(std::as_const(bases)));
        const auto division = zeropp::detail::operand_of<zeropp::host_space>(base_list).divided({ranks});
        const zeropp::detail::list_chunks chunks(division, wanted, exact_format.block_size);
        const auto tensors = zeropp::detail::operand_of<zeropp::host_space>(new_list).tensor();
        const auto replicas = zeropp::detail::operand_of<zeropp::host_space>(base_list).tensor();
        for (std::size_t c = 0; c != chunks.size(); ++c) {
            const auto chunk = chunks[c];
            const std::size_t stride = exact_format.bytes_of(chunk);
            guarded<std::byte> messages(ranks * stride, 0x5a);
            std::vector<std::uint64_t> sizes(ranks);
            for (int r = 0; r != ranks; ++r) {
                const auto slot = chunk.in_slots({}, r, 1);
                std::vector<std::byte> room(stride);
                std::uint64_t& size = sizes[static_cast<std::size_t>(r)];
                codec<host>::write_exact(exec, zeropp::difference{tensors, replicas}, slot, room.data(), &size);
                REQUIRE(size <= stride);
                codec<host>::place_exact(exec, slot, room.data(),
                                         messages.data() + static_cast<std::size_t>(r) * stride, stride);
            }
            REQUIRE(messages.intact());
            codec<host>::read_exact(exec, messages.data(), stride, chunk.in_slots({}, 0, ranks), replicas);
        }
        REQUIRE(base == now);
    }
}

TEST_CASE("exact differences refuse bytes that are none, and touch nothing outside", "[codec][exact]") {
    for (const change how : {change::few, change::mixed}) {
        const sample s(4096 + 300, how, 77);
        const std::vector<std::byte> message = check<bfloat16>(s.now, s.old);
        std::size_t refused = 0;
        const auto attempt = [&](const std::vector<std::byte>& bytes) {
            try {
                decoded<bfloat16>(host(), bytes, s.old);
            } catch (const zeropp::integrity_error& e) {
                ++refused;
                REQUIRE(e.source() == 0);
                REQUIRE(std::string(e.what()) ==
                        "codec: expected exact differences in the message of rank 0, given other bytes");
            }
        };
        for (std::size_t i = 0; i != message.size(); ++i) {
            for (const int flip : {0x01, 0x80, 0xff}) {
                std::vector<std::byte> changed(message);
                changed[i] ^= static_cast<std::byte>(flip);
                attempt(changed);
            }
        }
        REQUIRE(refused > 0);
        refused = 0;
        for (std::size_t size = 0; size != message.size(); ++size) {
            attempt(std::vector<std::byte>(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(size)));
        }
        REQUIRE(refused == message.size());
        refused = 0;
        // All ends of both tiles around the true ones, and far away.
        for (const std::size_t tile : {0u, 1u}) {
            for (const std::uint32_t end : {0u, 1u, 8u, 0x7fffffffu, 0xfffffffeu, 0xffffffffu}) {
                std::vector<std::byte> changed(message);
                std::memcpy(changed.data() + 4 * tile, &end, 4);
                attempt(changed);
            }
        }
        REQUIRE(refused == 12);
    }
}

TEST_CASE("exact differences of a shard without elements need no tensor", "[codec][exact]") {
    // A rank whose shard is empty, in a later chunk of the others' slices.
    const auto none = zeropp::slices::single(0, 4096, 5000);
    guarded<std::byte> room(exact_format.bytes_of(none), 0x77), message(exact_format.bytes_of(none), 0x77);
    std::uint64_t size = 0;
    codec<host>::write_exact(
        host(), zeropp::difference{static_cast<const bfloat16*>(nullptr), static_cast<const bfloat16*>(nullptr)}, none,
        room.data(), &size);
    REQUIRE(size == 2 * 4);
    codec<host>::place_exact(host(), none, room.data(), message.data(), message.size());
    REQUIRE((room.intact() && message.intact()));
    REQUIRE(exact_reader(message.values()).word(1) == 0);
    codec<host>::read_exact(host(), message.data(), message.size(), none, static_cast<bfloat16*>(nullptr));
}
