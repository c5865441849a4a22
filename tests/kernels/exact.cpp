/// \file
/// The kernels of exact differences against the host: the same bytes, and every new element to the bit.

#include "kernels/codec_against_host.hpp"

#include <zeropp/codec/cuda/exact_decode_kernel.cuh>
#include <zeropp/codec/cuda/exact_encode_kernel.cuh>
#include <zeropp/codec/cuda/exact_tile.cuh>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/topology/flat.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace device = zeropp_test::device;
namespace kernels = zeropp_test::kernels;
using device::device_array;
using device::owned_stream;
using zeropp::bfloat16;
using zeropp::half;
using on_host = zeropp::codec<zeropp::host>;
using on_device = zeropp::codec<zeropp::cuda_stream>;
constexpr zeropp::message_format exact_format = zeropp::format_of<zeropp::exact_differences>;

namespace {

enum class change { none, few, small, mixed, all };
constexpr change changes[] = {change::none, change::few, change::small, change::mixed, change::all};

template <class T>
T any_element(zeropp_test::random_source& draw) {
    return T::from_bits(static_cast<std::uint16_t>(draw.next()));
}

/// n old elements as trained weights have them, and new ones of type S.
template <class T, class S = T>
struct sample {
    std::vector<T> old;
    std::vector<S> now;

    sample(std::size_t n, change how, std::uint64_t seed) {
        zeropp_test::random_source draw(seed);
        const auto weight = [&] { return 0.02f * static_cast<float>(draw.normal()); };
        for (std::size_t i = 0; i != n; ++i) {
            const float x = weight();
            old.push_back(zeropp::element_traits<T>::from_float(x));
            const bool any = how == change::all || (how == change::mixed && i / 256 % 3 == 1);
            const bool moves =
                how == change::small || how == change::mixed || (how == change::few && draw.below(50) == 0);
            const float y = any     ? zeropp::element_traits<T>::to_float(any_element<T>(draw))
                            : moves ? x + 0.01f * weight()
                                    : zeropp::element_traits<T>::to_float(old[i]);
            now.push_back(zeropp::element_traits<S>::from_float(y));
            if constexpr (std::is_same_v<S, T>) {
                // A NaN with any bits, which floats do not carry.
                if (any) now.back() = any_element<T>(draw);
            }
        }
    }

    /// The new elements, rounded.
    std::vector<T> rounded() const {
        std::vector<T> values;
        for (const S x : now) values.push_back(T::from_bits(zeropp::detail::exact_bits<T>(x)));
        return values;
    }
};

template <class T>
std::vector<std::uint16_t> bits_of(const std::vector<T>& elements) {
    std::vector<std::uint16_t> bits;
    for (const T x : elements) bits.push_back(x.bits);
    return bits;
}

/// The host's message of slot `where`, with zeros up to `bytes` bytes.
template <class Difference, class Slices>
std::vector<std::byte> message_of(const Difference& source, const Slices& where, std::size_t bytes,
                                  std::uint64_t& size) {
    std::vector<std::byte> room(exact_format.bytes_of(where)), message(bytes);
    on_host::write_exact(zeropp::host(), source, where, room.data(), &size);
    on_host::place_exact(zeropp::host(), where, room.data(), message.data(), bytes);
    return message;
}

/// Expects the device's message of slot `where` to be the host's, with zeros behind it, and returns that.
template <class Host, class Device, class Slices>
std::vector<std::byte> check_message(const owned_stream& stream, const Host& of_host, const Slices& on_host_where,
                                     const Device& of_device, const Slices& where) {
    const std::size_t most = exact_format.bytes_of(where);
    // Room also for an odd number of bytes behind the message.
    std::uint64_t size = 0;
    const std::vector<std::byte> expected = message_of(of_host, on_host_where, most + 35, size);
    const device_array<std::byte> room(most), message(most + 35);
    const device_array<std::uint64_t> of_message(1);
    on_device::write_exact(stream.exec(), of_device, where, room.data(), of_message.data());
    on_device::place_exact(stream.exec(), where, room.data(), message.data(), message.size());
    stream.exec().wait();
    REQUIRE(device::device_fault() == "");
    REQUIRE(of_message.read()[0] == size);
    REQUIRE((message.read() == expected));
    REQUIRE((room.intact() && message.intact() && of_message.intact()));
    return {expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(most)};
}

/// Checks messages of all slots of `where`, and that these make new elements of old ones, and touch no others.
template <class T, class S>
void check(const sample<T, S>& s, const zeropp::slices& where, std::size_t shift, int multiprocessors = 4) {
    const owned_stream stream(multiprocessors);
    const device_array<S> now(s.now, shift);
    const device_array<T> old(s.old, shift / 2);
    std::vector<std::byte> messages;
    std::vector<T> expected(s.old);
    for (int slot = 0; slot != where.slots; ++slot) {
        const zeropp::slices one = where.in_slots(where.order, where.first_slot + slot, 1);
        const std::vector<std::byte> message =
            check_message(stream, zeropp::difference{s.now.data(), s.old.data()}, one,
                          zeropp::difference{static_cast<const S*>(now.data()), old.data()}, one);
        messages.insert(messages.end(), message.begin(), message.end());
        const std::vector<T> rounded = s.rounded();
        if (one.size(0) == 0) continue;
        std::copy_n(rounded.begin() + static_cast<std::ptrdiff_t>(one.offset(0)), one.size(0),
                    expected.begin() + static_cast<std::ptrdiff_t>(one.offset(0)));
    }
    const device_array<std::byte> received(messages);
    on_device::read_exact(stream.exec(), received.data(), exact_format.bytes_of(where), where, old.data());
    stream.exec().wait();
    REQUIRE(device::device_fault() == "");
    REQUIRE((bits_of(old.read()) == bits_of(expected)));
    REQUIRE(old.intact());
}

}  // namespace

TEST_CASE("kernels: exact differences of any number of elements", "[kernels][exact]") {
    std::uint64_t seed = 0;
    for (const std::size_t n : {0u, 1u, 7u, 8u, 9u, 255u, 256u, 257u, 513u, 4095u, 4096u, 4097u, 9000u}) {
        for (const change how : changes) {
            CAPTURE(n, static_cast<int>(how));
            ++seed;
            check(sample<bfloat16>(n, how, seed), zeropp::slices::single(n, 0, n), seed % 9);
            check(sample<half>(n, how, seed), zeropp::slices::single(n, 0, n), seed % 9 + 1);
            check(sample<bfloat16, float>(n, how, seed), zeropp::slices::single(n, 0, n), seed % 3);
        }
    }
    // More tiles than a multiprocessor takes at once.
    check(sample<bfloat16>(140001, change::small, 7), zeropp::slices::single(140001, 0, 140001), 0, 1);
}

TEST_CASE("kernels: exact differences of slots and chunks", "[kernels][exact]") {
    for (const auto& [name, where] : kernels::layouts(20011, 4096)) {
        CAPTURE(name);
        check(sample<bfloat16>(20011, change::small, 5), where, 1);
    }
}

TEST_CASE("kernels: exact differences carry every old element to every new one", "[kernels][exact]") {
    // Zeros, denormals, ends of both exponents' ranges, infinities and NaN of both types, with both signs.
    constexpr std::uint16_t values[] = {0,      1,      2,      0x7f,   0x80,   0x81,   0x3ff,  0x400,
                                        0x401,  0x3c00, 0x3f80, 0x4000, 0x7bff, 0x7c00, 0x7c01, 0x7e00,
                                        0x7f7f, 0x7f80, 0x7f81, 0x7fc0, 0x7fc1, 0x7ffe, 0x7fff};
    const auto check_type = [&]<class T>(T) {
        sample<T> all(0, change::none, 0);
        const auto with_sign = [](std::uint16_t bits, int negative) {
            return T::from_bits(static_cast<std::uint16_t>(bits | negative << 15));
        };
        for (const int signs : {0, 1, 2, 3}) {
            for (const std::uint16_t a : values) {
                for (const std::uint16_t b : values) {
                    all.old.push_back(with_sign(a, signs % 2));
                    all.now.push_back(with_sign(b, signs / 2));
                }
            }
        }
        check(all, zeropp::slices::single(all.old.size(), 0, all.old.size()), 0);
    };
    check_type(bfloat16());
    check_type(half());
}

TEST_CASE("kernels: exact differences of lists and chunks", "[kernels][exact]") {
    constexpr int ranks = 3;
    const zeropp::flat topology(ranks);
    const owned_stream stream;
    std::vector<sample<bfloat16, float>> samples;
    for (const std::size_t n : {100u, 0u, 3u * 4096, 30000u, 1u, 2u, 3u * 256 + 1, 20011u}) {
        samples.emplace_back(n, changes[samples.size() % 5], 40 + samples.size());
    }
    for (const int wanted : {1, 3, 100}) {
        CAPTURE(wanted);
        std::deque<device_array<float>> news;
        std::deque<device_array<bfloat16>> bases;
        std::vector<zeropp::list_tensor<float, zeropp::host_space>> host_news;
        std::vector<zeropp::list_tensor<bfloat16, zeropp::host_space>> host_bases;
        std::vector<zeropp::list_tensor<float, zeropp::device_space>> device_news;
        std::vector<zeropp::list_tensor<bfloat16, zeropp::device_space>> device_bases;
        for (sample<bfloat16, float>& s : samples) {
            host_news.emplace_back(s.now);
            host_bases.emplace_back(s.old);
            device_news.emplace_back(news.emplace_back(s.now, news.size() % 3).view());
            device_bases.emplace_back(bases.emplace_back(s.old, bases.size() % 4).view());
        }
        const zeropp::tensor_list<float, zeropp::host_space> host_new(topology, std::span(std::as_const(host_news)));
        const zeropp::tensor_list<bfloat16, zeropp::host_space> host_base(topology,
                                                                          std::span(std::as_const(host_bases)));
        const zeropp::tensor_list<float, zeropp::device_space> device_new(topology,
                                                                          std::span(std::as_const(device_news)));
        const zeropp::tensor_list<bfloat16, zeropp::device_space> device_base(topology,
                                                                              std::span(std::as_const(device_bases)));
        const auto chunks_of = [&](const auto& list) {
            const zeropp::detail::list_division whole(list.over_ranks(), list.resident(list.over_ranks()),
                                                      list.elements(), 0);
            return zeropp::detail::list_chunks(whole, wanted, exact_format.block_size);
        };
        const auto on_host_chunks = chunks_of(host_base);
        const auto on_device_chunks = chunks_of(device_base);
        const zeropp::tensor_table<const float> host_tensors{host_new.resident_tensors()};
        const zeropp::tensor_table<const bfloat16> host_replicas{host_base.resident_tensors()};
        const zeropp::tensor_table<const float> tensors{device_new.resident_tensors()};
        const zeropp::tensor_table<bfloat16> replicas{device_base.resident_tensors()};
        for (std::size_t c = 0; c != on_device_chunks.size(); ++c) {
            std::vector<std::byte> messages;
            for (int r = 0; r != ranks; ++r) {
                const std::vector<std::byte> message = check_message(
                    stream, zeropp::difference{host_tensors, host_replicas}, on_host_chunks[c].in_slots({}, r, 1),
                    zeropp::difference{tensors, replicas}, on_device_chunks[c].in_slots({}, r, 1));
                messages.insert(messages.end(), message.begin(), message.end());
            }
            const device_array<std::byte> received(messages);
            const auto where = on_device_chunks[c].in_slots({}, 0, ranks);
            on_device::read_exact(stream.exec(), received.data(), exact_format.bytes_of(where), where, replicas);
            stream.exec().wait();
        }
        for (std::size_t t = 0; t != samples.size(); ++t) {
            REQUIRE((bits_of(bases[t].read()) == bits_of(samples[t].rounded())));
            REQUIRE(bases[t].intact());
        }
    }
}

TEST_CASE("kernels: the ends of many payloads of exact differences", "[kernels][exact]") {
    zeropp_test::random_source random(3);
    for (const std::size_t tiles : {0u, 1u, 7u, 2048u, 2049u, 5000u}) {
        std::vector<std::uint32_t> words(tiles);
        for (std::uint32_t& w : words) w = static_cast<std::uint32_t>(random.below(2065));
        const device_array<std::uint32_t> index(words);
        const device_array<std::uint64_t> size(1);
        const owned_stream stream;
        zeropp::detail::launch(
            stream.exec(), 1, 1,
            zeropp::detail::exact_ends_kernel{reinterpret_cast<std::byte*>(index.data()), tiles, size.data()});
        stream.exec().wait();
        for (std::size_t t = 1; t < tiles; ++t) words[t] += words[t - 1];
        REQUIRE((index.read() == words));
        REQUIRE(size.read()[0] == 4 * (tiles + (tiles == 0 ? 0 : words.back())));
    }
}

TEST_CASE("kernels: bytes that are no exact differences make NaN, and touch nothing outside", "[kernels][exact]") {
    constexpr std::size_t n = 4096 + 300;
    constexpr std::size_t tiles = 2;
    const zeropp::slices where = zeropp::slices::single(n, 0, n);
    const owned_stream stream;
    for (const change how : {change::few, change::mixed}) {
        const sample<bfloat16> s(n, how, 77);
        std::uint64_t size = 0;
        std::vector<std::byte> message =
            message_of(zeropp::difference{s.now.data(), s.old.data()}, where, exact_format.bytes_of(where), size);
        message.resize(size);
        device_array<bfloat16> base(s.old, 3);
        const auto is_nan = [](bfloat16 x) { return x.bits == 0x7fff; };
        std::size_t refused = 0;
        // Expects tiles of NaN exactly if the host refuses the message, and otherwise the host's bits.
        const auto attempt = [&](const std::vector<std::byte>& bytes) {
            std::vector<bfloat16> expected(s.old);
            bool refuses = false;
            try {
                on_host::read_exact(zeropp::host(), bytes.data(), bytes.size(), where, expected.data());
            } catch (const zeropp::integrity_error&) {
                refuses = true;
                ++refused;
            }
            base.write(s.old);
            const device_array<std::byte> received(bytes);
            on_device::read_exact(stream.exec(), received.data(), bytes.size(), where, base.data());
            stream.exec().wait();
            const std::vector<bfloat16> given = base.read();
            const auto second = given.begin() + 4096;
            const bool nan = std::all_of(given.begin(), second, is_nan) || std::all_of(second, given.end(), is_nan);
            if (device::device_fault() != "" || !base.intact() || nan != refuses ||
                (!refuses && bits_of(given) != bits_of(expected))) {
                FAIL(device::device_fault() << " refuses: " << refuses << ", NaN: " << nan);
            }
        };
        for (std::size_t i = 0; i != message.size(); ++i) {
            CAPTURE(i);
            constexpr int flips[] = {0x01, 0x80, 0xff};
            std::vector<std::byte> changed(message);
            changed[i] ^= static_cast<std::byte>(flips[i % 3]);
            attempt(changed);
        }
        REQUIRE(refused > 0);
        for (std::size_t bytes = 0; bytes < message.size(); bytes += bytes < 64 ? 1 : 41) {
            CAPTURE(bytes);
            attempt(std::vector<std::byte>(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(bytes)));
        }
        for (std::size_t tile = 0; tile != tiles; ++tile) {
            for (const std::uint32_t end : {0u, 1u, 8u, 0x3fffffffu, 0x7fffffffu, 0xfffffffeu, 0xffffffffu}) {
                CAPTURE(tile, end);
                std::vector<std::byte> changed(message);
                std::memcpy(changed.data() + 4 * tile, &end, 4);
                attempt(changed);
            }
        }
    }
}
