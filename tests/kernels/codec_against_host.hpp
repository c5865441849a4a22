#pragma once
/// \file
/// The codec of CUDA streams against the codec of the host: the same bits for all sizes, alignments, numbers of
/// contributors, slots and grids. `device.hpp` is of the emulated device (tests/simt) or of a GPU (tests/gpu).

#include "device.hpp"
#include "support/catch.hpp"
#include "support/difference.hpp"
#include "support/samples.hpp"

#include <zeropp/codec/cuda.cuh>
#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace zeropp_test::kernels {

/// Element types of users' own: three bytes without alignment, and eight bytes.
struct three_bytes {
    unsigned char bytes[3];
};
struct eight_bytes {
    double value;
};

}  // namespace zeropp_test::kernels

template <>
struct zeropp::element_traits<zeropp_test::kernels::three_bytes> {
    static constexpr std::string_view name = "three_bytes";
    static ZEROPP_HOST_DEVICE float to_float(zeropp_test::kernels::three_bytes x) noexcept {
        return zeropp::bits_float(static_cast<std::uint32_t>(x.bytes[0] << 8 | x.bytes[1] << 16) |
                                  static_cast<std::uint32_t>(x.bytes[2]) << 24);
    }
    static ZEROPP_HOST_DEVICE zeropp_test::kernels::three_bytes from_float(float x) noexcept {
        std::uint32_t b = zeropp::float_bits(x);
        b = x != x ? 0x7fc00000u : b + 0x7fu + ((b >> 8) & 1u);
        return {{static_cast<unsigned char>(b >> 8), static_cast<unsigned char>(b >> 16),
                 static_cast<unsigned char>(b >> 24)}};
    }
};

template <>
struct zeropp::element_traits<zeropp_test::kernels::eight_bytes> {
    static constexpr std::string_view name = "eight_bytes";
    static ZEROPP_HOST_DEVICE float to_float(zeropp_test::kernels::eight_bytes x) noexcept {
        return static_cast<float>(x.value);
    }
    static ZEROPP_HOST_DEVICE zeropp_test::kernels::eight_bytes from_float(float x) noexcept {
        return {static_cast<double>(x)};
    }
};

namespace zeropp_test::kernels {

using device::device_array;
using device::device_fault;
using device::owned_stream;

/// Which elements of a tensor of `part.count()` elements travel in which slot, with a name for reports.
struct layout {
    std::string name;
    zeropp::slices where;
};

/// A tensor of n elements, divided and ordered in all the ways that the collectives use, and some that they do not.
inline std::vector<layout> layouts(std::size_t n, std::size_t block) {
    using zeropp::partition;
    using zeropp::slice_order;
    static constexpr int irregular[] = {3, 0, 4, 1, 2, 5};
    // Two sites of three nodes of two ranks; slots of a site are even, and so are those of a table backwards.
    static constexpr int in_sites[] = {0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11};
    static constexpr int backwards[] = {5, 4, 3, 0, 1, 2};
    const slice_order reordered{3, 2, 1, nullptr};
    const slice_order table{3, 0, 0, irregular};
    const std::size_t sixth = partition(n, 6).slice_size();
    const std::size_t half = partition(n, 2).slice_size();
    return {
        {"one slot", zeropp::slices::single(n, 0, n)},
        {"one slot longer than its elements", zeropp::slices::single(n, 0, n + 3)},
        {"four slots", {partition(n, 4), {}, 0, partition(n, 4).slice_size(), 0, 4}},
        {"reordered slots", {partition(n, 6), reordered, 0, sixth, 0, 6}},
        {"slots of a table", {partition(n, 6), table, 0, sixth, 0, 6}},
        {"the middle of reordered slots", {partition(n, 6), reordered, 0, sixth, 2, 3}},
        {"slots of sites", {partition(n, 12), {6, 0, 0, in_sites}, 0, partition(n, 12).slice_size(), 0, 12}},
        {"slots of one rank of sites", {partition(n, 12), {6, 0, 0, in_sites}, 0, partition(n, 12).slice_size(), 6, 6}},
        {"slots of a table backwards", {partition(n, 6), {3, 0, 0, backwards}, 0, sixth, 0, 6}},
        {"the end of the slots of a table", {partition(n, 6), table, 0, sixth, 3, 3}},
        {"a first chunk", {partition(n, 2), {2, 1, 1, nullptr}, 0, half < block ? half : block, 0, 2}},
        {"a chunk behind the first", {partition(n, 2), {}, block, half <= block ? 1 : half - block, 0, 2}},
        {"more slots than elements", {partition(n, 23), {}, 0, partition(n, 23).slice_size(), 0, 23}},
    };
}

/// Sizes that meet every edge of granules and blocks. The largest is more than a thread block does at once.
inline std::vector<std::size_t> sizes(std::size_t block) {
    std::vector<std::size_t> all{0, 1, 7, 8, 9, block - 1, block, block + 1, 997, 3 * block + 5};
    if (block <= 4096) all.insert(all.end(), {5003, 20011});
    return all;
}

/// Numbers of every kind, signed zeros, denormals, NaN and Inf among them.
inline std::vector<float> any_floats() {
    std::vector<float> values = mixed_floats(1u << 18, 11);
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr float odd[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
    for (std::size_t i = 0; i < values.size(); i += 1009) values[i] = odd[i % 3];
    return values;
}

/// Numbers in short runs, others for each contributor and each `salt`: of every kind where that is a multiple of three;
/// else ordinary or tiny ones, which leave blocks and windows of any size finite. Scales of tiny ones are denormal in
/// 16 bits.
template <class T>
std::vector<T> tensor(std::size_t n, std::size_t contributor, std::size_t salt = 0) {
    static const std::vector<float> pools[] = {any_floats(), normal_floats(1u << 18, 12),
                                               normal_floats(1u << 18, 13, 2e-6)};
    const std::vector<float>& pool = pools[salt % 3];
    random_source random(salt * 64 + contributor);
    std::vector<T> values;
    while (values.size() < n) {
        const std::size_t run = 1 + random.below(100);
        const std::size_t first = random.below(pool.size() - run);
        for (std::size_t i = 0; i != run && values.size() < n; ++i) {
            values.push_back(zeropp::element_traits<T>::from_float(pool[first + i]));
        }
    }
    return values;
}

/// The first difference of messages, padding included; empty if there is none. Where codes are elements, all NaN are
/// one.
template <zeropp::quantizer Q>
std::string message_difference(const Q& q, const zeropp::slices& where, const std::vector<std::byte>& given,
                               const std::vector<std::byte>& expected) {
    if (given.size() != expected.size()) return "another size";
    if (given.empty() || std::memcmp(given.data(), expected.data(), given.size()) == 0) return {};
    const zeropp::wire_layout<Q> wire(where.count);
    for (std::size_t i = 0; i != given.size(); ++i) {
        if (given[i] == expected[i]) continue;
        const std::size_t byte = i % wire.bytes;
        if constexpr (zeropp::params_bytes<Q> == 0) {
            constexpr std::size_t width = Q::code_bits / 8;
            const std::size_t code_begin = i - byte % width;
            std::uint32_t codes[2] = {0, 0};
            std::memcpy(&codes[0], &given[code_begin], width);
            std::memcpy(&codes[1], &expected[code_begin], width);
            const float g = q.decode(codes[0], {});
            const float e = q.decode(codes[1], {});
            if (byte < wire.params_offset && g != g && e != e) continue;
        }
        return "byte " + std::to_string(byte) + " of slot " + std::to_string(i / wire.bytes) + " (of " +
               std::to_string(wire.bytes) + " bytes, parameters from " + std::to_string(wire.params_offset) + ") is " +
               std::to_string(static_cast<int>(given[i])) + ", expected " +
               std::to_string(static_cast<int>(expected[i]));
    }
    return {};
}

/// The messages of `contributors` ranks for the same slots, as the host encodes them.
template <class T, zeropp::quantizer Q>
std::vector<std::byte> host_messages(const Q& q, const zeropp::slices& where, int contributors, std::size_t salt = 0) {
    const std::size_t group = static_cast<std::size_t>(where.slots) * wire_bytes(q, where.count);
    std::vector<std::byte> messages(static_cast<std::size_t>(contributors) * group);
    for (int c = 0; c != contributors; ++c) {
        const auto elements = tensor<T>(where.part.count(), static_cast<std::size_t>(c), salt);
        zeropp::codec<zeropp::host>::write(zeropp::host{}, q, elements.data(), where,
                                           messages.data() + static_cast<std::size_t>(c) * group);
    }
    return messages;
}

/// Case number n: its device's size, numbers, alignment of tensors, number of contributors and epilogue. They depend on
/// two digits of a number that runs ahead by one for each size, so that every two of them meet in all pairs.
struct variation {
    std::size_t n = 0;

    /// Number of a device in a list of three.
    std::size_t device() const { return (first() / 2 + second() / 2) % 3; }
    /// Of numbers: see tensor().
    std::size_t salt() const { return 3 * n + (first() + second() + ahead() / 36) % 3; }
    int contributors() const {
        constexpr int some[] = {1, 2, 3, 4, 5, 8};
        return some[first()];
    }
    /// Elements of 16 bits then begin at every kind of address, in any three cases six apart at three kinds.
    std::size_t shift() const {
        constexpr std::size_t some[] = {1, 0, 2, 7, 0, 2};
        return some[second()];
    }
    zeropp::epilogue epilogue() const { return {(first() / 2 + second()) % 2 == 1, (first() + second() / 2) % 2 == 1}; }
    float divisor() const {
        constexpr float divisors[] = {1, 3, 4, 6, 8};
        return divisors[ahead() % 5];
    }

private:
    std::size_t ahead() const { return n + n / 10; }
    std::size_t first() const { return ahead() % 6; }
    std::size_t second() const { return ahead() / 6 % 6; }
};

using zeropp::cuda_stream;
using on_device = zeropp::codec<cuda_stream>;
using on_host = zeropp::codec<zeropp::host>;

template <class T, zeropp::quantizer Q>
void check_encode(const cuda_stream& exec, const Q& q, const layout& l, const variation& v) {
    const auto elements = tensor<T>(l.where.part.count(), 0, v.salt());
    const std::vector<std::byte> expected = host_messages<T>(q, l.where, 1, v.salt());
    const device_array<T> in(elements, v.shift());
    const device_array<std::byte> out(expected.size());
    on_device::write(exec, q, in.data(), l.where, out.data());
    exec.wait();
    REQUIRE(message_difference(q, l.where, out.read(), expected) == "");
    REQUIRE((out.intact() && in.intact() && difference(in.read(), elements).empty()));
}

template <class T, zeropp::quantizer Q>
void check_decode(const cuda_stream& exec, const Q& q, const layout& l, const variation& v) {
    const std::vector<std::byte> messages = host_messages<T>(q, l.where, 1, v.salt());
    auto expected = tensor<T>(l.where.part.count(), 9, v.salt());
    const device_array<T> out(expected, v.shift());
    const device_array<std::byte> in(messages);
    on_host::read(zeropp::host{}, zeropp::message_sum{q, messages.data()}, l.where, expected.data());
    on_device::read(exec, zeropp::message_sum{q, in.data()}, l.where, out.data());
    exec.wait();
    REQUIRE(difference(out.read(), expected) == "");
    REQUIRE((out.intact() && in.intact()));
}

template <class T, zeropp::quantizer Q>
void check_reduce_decode(const cuda_stream& exec, const Q& q, const layout& l, const variation& v) {
    const int contributors = v.contributors();
    const zeropp::epilogue last = v.epilogue();
    const float divisor = v.divisor();
    INFO(contributors << " contributors, divided by " << divisor << (last.accumulate ? ", accumulated" : "")
                      << (last.drop_non_finite ? " on what is finite" : ""));
    const std::vector<std::byte> messages = host_messages<T>(q, l.where, contributors, v.salt());
    auto expected = tensor<T>(l.where.part.count(), 9, v.salt());
    const device_array<T> out(expected, v.shift());
    const device_array<std::byte> in(messages);
    on_host::read(zeropp::host{}, zeropp::message_sum{q, messages.data(), contributors, divisor}, l.where,
                  expected.data(), last);
    on_device::read(exec, zeropp::message_sum{q, in.data(), contributors, divisor}, l.where, out.data(), last);
    exec.wait();
    REQUIRE(difference(out.read(), expected) == "");
    REQUIRE((out.intact() && in.intact()));
}

template <zeropp::quantizer From, zeropp::quantizer To>
void check_reduce_encode(const cuda_stream& exec, const From& from, const To& to, const layout& l, const variation& v) {
    const int contributors = v.contributors();
    const float divisor = v.divisor();
    INFO(contributors << " contributors, divided by " << divisor);
    const std::vector<std::byte> messages = host_messages<float>(from, l.where, contributors, v.salt());
    std::vector<std::byte> expected(static_cast<std::size_t>(l.where.slots) * wire_bytes(to, l.where.count));
    const device_array<std::byte> in(messages);
    const device_array<std::byte> out(expected.size());
    on_host::write(zeropp::host{}, to, zeropp::message_sum{from, messages.data(), contributors, divisor}, l.where,
                   expected.data());
    on_device::write(exec, to, zeropp::message_sum{from, in.data(), contributors, divisor}, l.where, out.data());
    exec.wait();
    REQUIRE(message_difference(to, l.where, out.read(), expected) == "");
    REQUIRE((out.intact() && in.intact()));
}

/// Calls check(exec, layout, variation) for all sizes and layouts, on devices of three sizes if they are emulated. Then
/// for whole tiles, which few layouts have, with each number of contributors and three alignments.
template <class Check>
void for_each_case(std::size_t block, const std::vector<std::size_t>& all, Check check) {
    const owned_stream streams[] = {owned_stream(1), owned_stream(132), owned_stream(3)};
    variation v;
    const auto check_one = [&](std::size_t n, const layout& l) {
        INFO(n << " elements, " << l.name << ", variation " << v.n);
        check(streams[v.device()].exec(), l, v);
        ++v.n;
    };
    for (const std::size_t n : all) {
        for (const layout& l : layouts(n, block)) check_one(n, l);
    }
    if (all == sizes(block) && block <= 4096) {
        for (std::size_t i = 0; i != 18; ++i) {
            const std::size_t n = 16384 - i / 2 % 2 * 3;
            check_one(n, layouts(n, block).front());
        }
    }
    REQUIRE(device_fault() == "");
}

/// Encode, decode, and decode + sum + epilogue.
template <class T, zeropp::quantizer Q>
void check_tensors(const Q& q, const std::vector<std::size_t>& all = sizes(Q::block_size)) {
    INFO(zeropp::short_text(q.name()).str() << " on " << zeropp::element_traits<T>::name);
    for_each_case(Q::block_size, all, [&](const cuda_stream& exec, const layout& l, const variation& v) {
        check_encode<T>(exec, q, l, v);
        check_decode<T>(exec, q, l, v);
        check_reduce_decode<T>(exec, q, l, v);
    });
}

template <zeropp::quantizer From, zeropp::quantizer To>
inline constexpr auto larger_block =
    static_cast<std::size_t>(From::block_size > To::block_size ? From::block_size : To::block_size);

/// Decode + sum + encode.
template <zeropp::quantizer From, zeropp::quantizer To>
void check_sums(const From& from, const To& to, const std::vector<std::size_t>& all = sizes(larger_block<From, To>)) {
    INFO(zeropp::short_text(from.name()).str() << " to " << zeropp::short_text(to.name()).str());
    for_each_case(larger_block<From, To>, all, [&](const cuda_stream& exec, const layout& l, const variation& v) {
        check_reduce_encode(exec, from, to, l, v);
    });
}

}  // namespace zeropp_test::kernels
