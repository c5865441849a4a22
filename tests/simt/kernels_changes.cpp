/// \file
/// The kernels of changed elements: the bytes of the host's codec and of a reference, whatever has changed and however
/// the tensor lies; and nothing outside the elements, whatever a message says.

#include "simt/codec_against_host.hpp"
#include "support/changes_reference.hpp"

#include <zeropp/core/changes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::changes_layout;
using zeropp::changes_runs;
using zeropp_test::random_source;

namespace {

using numbers_of_slots = simt::device_array<std::uint64_t>;

/// n elements of any bits.
template <class T>
std::vector<T> any_bits(std::size_t n, random_source& random) {
    std::vector<T> elements(n);
    auto* const bytes = reinterpret_cast<unsigned char*>(elements.data());
    for (std::size_t i = 0; i != n * sizeof(T); ++i) bytes[i] = static_cast<unsigned char>(random.next() >> 56);
    return elements;
}

/// The same, with so many of a thousand elements changed in one of their bits.
template <class T>
std::vector<T> changed(std::vector<T> elements, std::size_t of_1000, random_source& random) {
    for (T& x : elements) {
        if (random.below(1000) >= of_1000) continue;
        const std::size_t bit = random.below(8 * sizeof(T));
        reinterpret_cast<unsigned char*>(&x)[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    }
    return elements;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Counts, encodes and decodes the slots of `where`, of which the message has room for a few more than there are.
template <class T>
void check(const zeropp::cuda_stream& exec, const zeropp::slices& where, std::size_t of_1000, std::size_t variation) {
    INFO(of_1000 << " of 1000 have changed");
    random_source random(variation + 1);
    const auto before = any_bits<T>(where.part.count(), random);
    const auto after = changed(before, of_1000, random);
    const std::size_t groups = (where.count + 255) / 256;
    const changes_runs runs(groups);
    const auto slots = static_cast<std::size_t>(where.slots);
    const simt::device_array<T> base(before, variation % 3), tensor(after, variation / 2 % 3);
    const numbers_of_slots numbers(runs.numbers());
    const zeropp::difference on_device{static_cast<const T*>(tensor.data()), static_cast<const T*>(base.data())};
    const zeropp::difference on_host{after.data(), before.data()};

    std::vector<std::uint64_t> counts(slots);
    for (int s = 0; s != where.slots; ++s) {
        simt::on_host::count_changes(zeropp::host{}, on_host, where.only_slot(s), &counts[static_cast<std::size_t>(s)]);
        simt::on_device::count_changes(exec, on_device, where.only_slot(s), numbers.data());
        exec.wait();
        REQUIRE(numbers.read()[0] == counts[static_cast<std::size_t>(s)]);
    }
    const changes_layout layout(groups, *std::max_element(counts.begin(), counts.end()) + variation % 40, sizeof(T));
    std::vector<std::byte> messages;
    for (int s = 0; s != where.slots; ++s) {
        INFO("slot " << s);
        const simt::device_array<std::byte> message(layout.bytes);
        simt::on_device::count_changes(exec, on_device, where.only_slot(s), numbers.data());
        simt::on_device::encode_changes(exec, on_device, where.only_slot(s), layout, numbers.data(), message.data());
        std::vector<std::byte> of_host(layout.bytes, std::byte{0xa5});
        simt::on_host::encode_changes(zeropp::host{}, on_host, where.only_slot(s), layout, nullptr, of_host.data());
        exec.wait();
        const std::size_t offset = where.size(s) == 0 ? 0 : where.offset(s);
        const auto expected = zeropp_test::changes_message(after.data() + offset, before.data() + offset, where.size(s),
                                                           groups, layout.changes);
        REQUIRE((of_host == expected));
        REQUIRE((message.read() == expected));
        REQUIRE(message.intact());
        messages.insert(messages.end(), expected.begin(), expected.end());
    }
    REQUIRE(numbers.intact());

    auto decoded = before;
    simt::on_host::decode_changes(zeropp::host{}, messages.data(), layout, where, decoded.data(), nullptr);
    const simt::device_array<T> to(before, (variation + 1) % 3);
    const simt::device_array<std::byte> in(messages);
    const numbers_of_slots of_slots(slots * runs.numbers());
    simt::on_device::decode_changes(exec, in.data(), layout, where, to.data(), of_slots.data());
    exec.wait();
    REQUIRE(same_bits(to.read(), decoded));
    REQUIRE((to.intact() && of_slots.intact()));
    std::vector<std::uint64_t> sums;
    for (std::size_t s = 0; s != slots; ++s) sums.push_back(of_slots.read()[s * runs.numbers()]);
    REQUIRE(sums == counts);
}

constexpr std::size_t densities[] = {0, 1000, 10, 500, 1, 990};

template <class T>
void check_sizes(const std::vector<std::size_t>& sizes) {
    const simt::owned_stream streams[] = {simt::owned_stream(1), simt::owned_stream(132)};
    std::size_t variation = 0;
    for (const std::size_t n : sizes) {
        for (const simt::layout& l : simt::layouts(n, 256)) {
            INFO(n << " elements, " << l.name << ", variation " << variation);
            check<T>(streams[variation % 2].exec(), l.where, densities[variation % std::size(densities)], variation);
            ++variation;
        }
    }
    REQUIRE(simt::device_fault() == "");
}

/// One slot with all of a tensor of n elements.
zeropp::slices all_of(std::size_t n) { return zeropp::slices::single(n, 0, n); }

}  // namespace

TEST_CASE("kernels of changes: the host's bytes, whatever sizes, slots and elements", "[simt][kernels][changes]") {
    check_sizes<zeropp::bfloat16>({0, 1, 255, 256, 257, 3001});
    check_sizes<float>({0, 1, 7, 256, 1537});
    check_sizes<simt::three_bytes>({1, 700});
    check_sizes<simt::eight_bytes>({1, 700});
}

TEST_CASE("kernels of changes: every place and number of one group", "[simt][kernels][changes]") {
    const simt::owned_stream stream;
    for (std::size_t n = 250; n != 262; ++n) {
        for (std::size_t v = 0; v != std::size(densities); ++v) {
            check<zeropp::half>(stream.exec(), all_of(n), densities[v], v);
        }
    }
}

TEST_CASE("kernels of changes: runs that fill the warps of a grid, and where threads add them up",
          "[simt][kernels][changes]") {
    const simt::owned_stream stream(1);
    for (const std::size_t groups : {7u, 8u, 9u, 31u, 33u, 127u, 129u, 255u, 257u, 513u}) {
        check<zeropp::bfloat16>(stream.exec(), all_of(groups * 256 - groups % 5), densities[groups % 5 + 1], groups);
    }
}

TEST_CASE("kernels of changes: more groups than runs", "[simt][kernels][changes]") {
    const simt::owned_stream stream;
    constexpr std::size_t n = (changes_runs::most + 1) * 256 + 3;
    static_assert(changes_runs(n / 256 + 1).length == 2);
    check<zeropp::bfloat16>(stream.exec(), all_of(n), 5, 1);
}

TEST_CASE("kernels of changes: runs of any length", "[simt][kernels][changes]") {
    // As tensors of more elements than are tested here have them.
    const simt::owned_stream stream;
    const zeropp::cuda_stream& exec = stream.exec();
    using T = zeropp::bfloat16;
    using tensor = zeropp::detail::tensor_source<T>;
    using source = zeropp::detail::difference_source<tensor, tensor>;
    random_source random(5);
    constexpr std::size_t groups = 300;
    constexpr std::size_t n = groups * 256 - 100;
    const auto before = any_bits<T>(n, random);
    const auto after = changed(before, 20, random);
    const simt::device_array<T> from(after), base(before);
    for (const std::size_t length : {1u, 31u, 32u, 33u, 64u, 100u, 299u, 1000u}) {
        INFO("runs of " << length << " groups");
        changes_runs runs(groups);
        runs.length = length;
        runs.count = zeropp::ceil_div(groups, length);
        const std::size_t tiles = zeropp::detail::tiles_of_runs(runs);
        const numbers_of_slots numbers(runs.numbers());
        const source d{{from.data()}, {base.data()}};
        zeropp::detail::launch(
            exec, 1, tiles,
            zeropp::detail::count_changes_kernel<source, zeropp::slices>{d, all_of(n), groups, runs, numbers.data()});
        zeropp::detail::launch(exec, 1, 1, zeropp::detail::place_runs_kernel{runs, 1, numbers.data()});
        exec.wait();
        const changes_layout layout(groups, numbers.read()[0], sizeof(T));
        const simt::device_array<std::byte> message(layout.bytes);
        zeropp::detail::launch(exec, 1, tiles,
                               zeropp::detail::encode_changes_kernel<source, T, zeropp::slices>{
                                   d, all_of(n), layout, runs, numbers.data(), message.data()});
        exec.wait();
        REQUIRE(
            (message.read() == zeropp_test::changes_message(after.data(), before.data(), n, groups, layout.changes)));
        const auto placed = numbers.read();
        zeropp::detail::launch(exec, 1, tiles,
                               zeropp::detail::sum_changes_kernel{message.data(), layout, runs, 1, numbers.data()});
        zeropp::detail::launch(exec, 1, 1, zeropp::detail::place_runs_kernel{runs, 1, numbers.data()});
        const simt::device_array<T> to(before);
        zeropp::detail::launch(exec, 1, tiles,
                               zeropp::detail::decode_changes_kernel<T, T*, zeropp::slices>{
                                   {to.data()}, all_of(n), message.data(), layout, runs, numbers.data()});
        exec.wait();
        REQUIRE(numbers.read() == placed);
        REQUIRE(same_bits(to.read(), after));
        REQUIRE((to.intact() && numbers.intact() && message.intact()));
    }
}

TEST_CASE("kernels of changes: a message of anything writes nothing outside its elements", "[simt][kernels][changes]") {
    const simt::owned_stream stream;
    random_source random(7);
    for (int i = 0; i != 300; ++i) {
        const std::size_t n = 1 + random.below(i % 10 == 0 ? 20000 : 600);
        const changes_layout layout((n + 255) / 256, random.below(40), sizeof(float));
        auto message = any_bits<std::byte>(layout.bytes, random);
        // Counts that add up, some of the time: otherwise few groups have any.
        if (i % 2 == 0) {
            for (std::size_t g = 0; g != layout.groups; ++g) message[2 * g + 1] = std::byte{0};
        }
        // The elements of one slot among others'.
        const std::size_t offset = random.below(9);
        const std::vector<float> before(n + 300 + offset, 3.0f);
        const simt::device_array<float> to(before);
        const simt::device_array<std::byte> in(message);
        const numbers_of_slots numbers(changes_runs(layout.groups).numbers());
        simt::on_device::decode_changes(stream.exec(), in.data(), layout, all_of(n), to.data() + offset,
                                        numbers.data());
        stream.exec().wait();
        const auto given = to.read();
        const auto is_three = [](float x) { return x == 3.0f; };
        REQUIRE(std::all_of(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(offset), is_three));
        REQUIRE(std::all_of(given.begin() + static_cast<std::ptrdiff_t>(offset + n), given.end(), is_three));
        REQUIRE((to.intact() && in.intact() && numbers.intact()));
        // What is written comes from the message's elements.
        const auto expected_some = reinterpret_cast<const char*>(message.data() + layout.elements_offset);
        for (std::size_t k = offset; k != offset + n; ++k) {
            if (is_three(given[k])) continue;
            bool found = false;
            for (std::size_t c = 0; c != layout.changes; ++c) {
                found |= std::memcmp(expected_some + c * sizeof(float), &given[k], sizeof(float)) == 0;
            }
            REQUIRE(found);
        }
    }
    REQUIRE(simt::device_fault() == "");
}

TEST_CASE("kernels of changes: a message without room for all has the first ones", "[simt][kernels][changes]") {
    const simt::owned_stream stream;
    random_source random(4);
    constexpr std::size_t n = 3000;
    const auto before = any_bits<float>(n, random);
    const auto after = changed(before, 300, random);
    const simt::device_array<float> base(before), tensor(after);
    for (const std::size_t room : {0u, 1u, 50u, 500u}) {
        const changes_layout layout(12, room, sizeof(float));
        const numbers_of_slots numbers(changes_runs(12).numbers());
        const simt::device_array<std::byte> message(layout.bytes);
        const zeropp::difference d{tensor.data(), base.data()};
        simt::on_device::count_changes(stream.exec(), d, all_of(n), numbers.data());
        simt::on_device::encode_changes(stream.exec(), d, all_of(n), layout, numbers.data(), message.data());
        stream.exec().wait();
        REQUIRE(numbers.read()[0] > room);
        std::vector<std::byte> expected(layout.bytes);
        simt::on_host::encode_changes(zeropp::host{}, zeropp::difference{after.data(), before.data()}, all_of(n),
                                      layout, nullptr, expected.data());
        REQUIRE((message.read() == expected));
        REQUIRE(message.intact());
    }
}

TEST_CASE("kernels of changes: a tensor that changes between counting and encoding stays inside the message",
          "[simt][kernels][changes]") {
    const simt::owned_stream stream;
    random_source random(3);
    const auto before = any_bits<zeropp::bfloat16>(5000, random);
    const auto after = changed(before, 100, random);
    const simt::device_array<zeropp::bfloat16> base(before), tensor(after);
    const changes_runs runs(20);
    const numbers_of_slots numbers(runs.numbers());
    const zeropp::difference d{tensor.data(), base.data()};
    simt::on_device::count_changes(stream.exec(), d, all_of(5000), numbers.data());
    stream.exec().wait();
    const changes_layout layout(20, numbers.read()[0], 2);
    const simt::device_array<std::byte> message(layout.bytes);
    const simt::device_array<zeropp::bfloat16> other(any_bits<zeropp::bfloat16>(5000, random));
    simt::on_device::encode_changes(stream.exec(), zeropp::difference{other.data(), base.data()}, all_of(5000), layout,
                                    numbers.data(), message.data());
    stream.exec().wait();
    CHECK(message.intact());
    CHECK(simt::device_fault() == "");
}
