#pragma once
/// \file
/// The codec of CUDA streams against the codec of the host, operation by operation: the same bits.

#include "gpu/device.hpp"
#include "support/catch.hpp"
#include "support/samples.hpp"

#include <zeropp/cuda.cuh>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zeropp_test::gpu {

using on_device = zeropp::codec<zeropp::cuda_stream>;
using on_host = zeropp::codec<zeropp::host>;

/// Which elements of a tensor travel in which slot, with a name for reports.
struct layout {
    std::string_view name;
    zeropp::slices where;
};

/// A tensor of n elements, divided and ordered in the ways of the collectives: regular, by table, a chunk of slices.
inline std::vector<layout> layouts(std::size_t n, std::size_t block) {
    using zeropp::partition;
    static constexpr int irregular[] = {3, 0, 4, 1, 2, 5};
    const std::size_t sixth = partition(n, 6).slice_size();
    const std::size_t half = partition(n, 2).slice_size();
    return {
        {"one slot", zeropp::slices::single(n, 0, n)},
        {"reordered slots", {partition(n, 6), {3, 2, 1, nullptr}, 0, sixth, 0, 6}},
        {"the end of the slots of a table", {partition(n, 6), {3, 0, 0, irregular}, 0, sixth, 3, 3}},
        {"a chunk behind the first", {partition(n, 2), {}, block, half <= block ? 1 : half - block, 0, 2}},
    };
}

/// Sizes that meet every edge of granules and blocks, and one that fills several blocks of threads.
inline std::vector<std::size_t> sizes(std::size_t block) {
    return {1, 7, 8, 9, block - 1, block, block + 1, 3 * block + 5, 20'003};
}

/// Numbers of every kind, denormals, NaN and Inf among them; others for each contributor.
template <class T>
std::vector<T> tensor(std::size_t n, std::size_t contributor) {
    static const std::vector<float> pool = mixed_floats(1'000'003, 17);
    std::vector<T> values(n);
    for (std::size_t i = 0; i != n; ++i) {
        values[i] = zeropp::element_traits<T>::from_float(pool[(i + contributor * 77'777) % pool.size()]);
    }
    return values;
}

/// The messages of `contributors` ranks for the same slots, as the host encodes them.
template <class T, zeropp::quantizer Q>
std::vector<std::byte> host_messages(const Q& q, const zeropp::slices& where, int contributors) {
    const std::size_t group = static_cast<std::size_t>(where.slots) * wire_bytes(q, where.count);
    std::vector<std::byte> messages(static_cast<std::size_t>(contributors) * group);
    for (int c = 0; c != contributors; ++c) {
        const auto elements = tensor<T>(where.part.count(), static_cast<std::size_t>(c));
        on_host::write(zeropp::host{}, q, elements.data(), where,
                       messages.data() + static_cast<std::size_t>(c) * group);
    }
    return messages;
}

template <class T, zeropp::quantizer Q>
void check_encode(const zeropp::cuda_stream& exec, const Q& q, const zeropp::slices& where, std::size_t shift) {
    const std::vector<std::byte> expected = host_messages<T>(q, where, 1);
    const device_array<T> in(tensor<T>(where.part.count(), 0), shift);
    const device_array<std::byte> out(expected.size());
    on_device::write(exec, q, in.data(), where, out.data());
    exec.wait();
    CHECK(difference(out.read(), expected) == "");
    CHECK(out.intact());
}

template <class T, zeropp::quantizer Q>
void check_reduce_decode(const zeropp::cuda_stream& exec, const Q& q, const zeropp::slices& where, std::size_t shift,
                         int contributors, float divisor, zeropp::epilogue last) {
    INFO(contributors << " contributors, divided by " << divisor << (last.accumulate ? ", accumulated" : ""));
    const std::vector<std::byte> messages = host_messages<T>(q, where, contributors);
    auto expected = tensor<T>(where.part.count(), 9);
    const device_array<T> out(expected, shift);
    const device_array<std::byte> in(messages);
    on_host::read(zeropp::host{}, zeropp::message_sum{q, messages.data(), contributors, divisor}, where,
                  expected.data(), last);
    on_device::read(exec, zeropp::message_sum{q, in.data(), contributors, divisor}, where, out.data(), last);
    exec.wait();
    CHECK(difference(out.read(), expected) == "");
    CHECK(out.intact());
}

template <class T, zeropp::quantizer Q>
void check_decode(const zeropp::cuda_stream& exec, const Q& q, const zeropp::slices& where, std::size_t shift) {
    const std::vector<std::byte> messages = host_messages<T>(q, where, 1);
    auto expected = tensor<T>(where.part.count(), 9);
    const device_array<T> out(expected, shift);
    const device_array<std::byte> in(messages);
    on_host::read(zeropp::host{}, zeropp::message_sum{q, messages.data()}, where, expected.data());
    on_device::read(exec, zeropp::message_sum{q, in.data()}, where, out.data());
    exec.wait();
    CHECK(difference(out.read(), expected) == "");
    CHECK(out.intact());
}

template <zeropp::quantizer From, zeropp::quantizer To>
void check_reduce_encode(const zeropp::cuda_stream& exec, const From& from, const To& to, const zeropp::slices& where,
                         int contributors) {
    INFO(contributors << " contributors");
    const std::vector<std::byte> messages = host_messages<float>(from, where, contributors);
    std::vector<std::byte> expected(static_cast<std::size_t>(where.slots) * wire_bytes(to, where.count));
    const device_array<std::byte> in(messages);
    const device_array<std::byte> out(expected.size());
    on_host::write(zeropp::host{}, to, zeropp::message_sum{from, messages.data(), contributors}, where,
                   expected.data());
    on_device::write(exec, to, zeropp::message_sum{from, in.data(), contributors}, where, out.data());
    exec.wait();
    CHECK(difference(out.read(), expected) == "");
    CHECK(out.intact());
}

/// Calls check(exec, where, variation) for sizes and layouts; the variation changes from case to case, so that few of
/// them meet all alignments and numbers of contributors.
template <class Check>
void for_each_case(const std::vector<std::size_t>& all, std::size_t block, Check check) {
    const owned_stream stream;
    std::size_t variation = 0;
    for (const std::size_t n : all) {
        for (const layout& l : layouts(n, block)) {
            INFO(n << " elements, " << l.name << ", variation " << variation);
            check(stream.exec(), l.where, variation);
            ++variation;
        }
    }
}

inline int contributors_of(std::size_t variation) {
    constexpr int some[] = {1, 2, 3, 4, 8, 5, 2};
    return some[variation % 7];
}

/// Encode, decode, and decode + sum + epilogue, on tensors at any alignment.
template <class T, zeropp::quantizer Q>
void check_tensors(const Q& q, const std::vector<std::size_t>& all = sizes(Q::block_size)) {
    INFO(zeropp::short_text(q.name()).str() << " on " << zeropp::element_traits<T>::name);
    for_each_case(all, Q::block_size, [&](const zeropp::cuda_stream& exec, const zeropp::slices& where, std::size_t v) {
        constexpr float divisors[] = {1, 3, 4, 6, 8};
        check_encode<T>(exec, q, where, v % 3);
        check_decode<T>(exec, q, where, v / 2 % 3);
        check_reduce_decode<T>(exec, q, where, v % 3, contributors_of(v), divisors[v % 5], {v / 3 % 2 == 1});
    });
}

/// Decode + sum + encode.
template <zeropp::quantizer From, zeropp::quantizer To>
void check_sums(const From& from, const To& to, const std::vector<std::size_t>& all = sizes(From::block_size)) {
    INFO(zeropp::short_text(from.name()).str() << " to " << zeropp::short_text(to.name()).str());
    constexpr std::size_t block = From::block_size > To::block_size ? From::block_size : To::block_size;
    for_each_case(all, block, [&](const zeropp::cuda_stream& exec, const zeropp::slices& where, std::size_t v) {
        check_reduce_encode(exec, from, to, where, contributors_of(v));
    });
}

}  // namespace zeropp_test::gpu
