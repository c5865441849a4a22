#pragma once
/// \file
/// Laws of the codec concept, checked byte by byte against the reference, for executions with memory that the host can
/// read.

#include <zeropp/codec/codec.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

#include "support/catch.hpp"
#include "support/floating_format.hpp"
#include "support/guarded.hpp"
#include "support/integer_models.hpp"
#include "support/reference.hpp"
#include "support/samples.hpp"
#include "support/toy_quantizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace zeropp_test {

// ---- quantizers and elements in terms of the reference

template <class Q>
struct reference_of;

template <int Bits, int BlockSize, class Scheme, class Scale>
struct reference_of<zeropp::block_integer<Bits, BlockSize, Scheme, Scale>> {
    static constexpr reference_format format{scheme_named<Scheme>, Bits, BlockSize, format_of<Scale>};
};
template <class T>
struct reference_of<zeropp::cast_to<T>> {
    static constexpr reference_format format{scheme::lossless, 8 * sizeof(T), 64, format_of<T>};
};

template <class T>
float as_float(T x) {
    if constexpr (std::is_same_v<T, float>) {
        return x;
    } else if constexpr (std::is_same_v<T, toy_element>) {
        return zeropp::element_traits<toy_element>::to_float(x);
    } else {
        return static_cast<float>(format_of<T>.value(x.bits));
    }
}

/// True if `x` rounds to `actual`.
template <class T>
bool rounds_to(float x, T actual) {
    if constexpr (std::is_same_v<T, float>) {
        return same(x, actual);
    } else if constexpr (std::is_same_v<T, toy_element>) {
        return zeropp::element_traits<toy_element>::from_float(x) == actual;
    } else {
        return is_nan(x) ? is_nan(as_float(actual)) : format_of<T>.nearest(static_cast<double>(x)) == actual.bits;
    }
}

template <class T>
std::vector<T> elements_from(const std::vector<float>& values) {
    std::vector<T> elements;
    for (const float x : values) elements.push_back(zeropp::element_traits<T>::from_float(x));
    return elements;
}

// ---- the elements of a tensor in each slot

/// A tensor divided into shards, and a run of slots that carries a part of each shard. `ranks_by_slot` lists the order.
struct cut {
    std::string what;
    std::size_t elements;
    std::vector<int> ranks_by_slot;
    zeropp::slice_order order;
    std::size_t begin;
    std::size_t count;
    int first_slot;
    int slots;

    zeropp::slices slices() const {
        zeropp::slice_order used = order;
        if (order.table != nullptr) used.table = ranks_by_slot.data();
        return {
            zeropp::partition(elements, static_cast<int>(ranks_by_slot.size())), used, begin, count, first_slot, slots};
    }

    /// Indices in the tensor of the elements in slot s of the run.
    std::vector<std::size_t> carried(int s) const {
        const std::size_t ranks = ranks_by_slot.size();
        const std::size_t slice = (elements + ranks - 1) / ranks;
        const auto rank = static_cast<std::size_t>(ranks_by_slot[static_cast<std::size_t>(first_slot + s)]);
        std::vector<std::size_t> indices;
        for (std::size_t i = begin; i != begin + count && i != slice && rank * slice + i < elements; ++i) {
            indices.push_back(rank * slice + i);
        }
        return indices;
    }
};

/// One slot that carries a whole tensor.
inline cut whole(std::size_t n) { return {"whole " + std::to_string(n), n, {0}, {}, 0, n, 0, 1}; }

/// Cuts of every kind for a block size: whole tensors, shards of which the last are empty, chunks within shards and
/// beyond their ends, runs of slots, regular orders by stride, irregular orders by table.
inline std::vector<cut> telling_cuts(std::size_t block) {
    std::vector<cut> cuts;
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{9},
                                block - 1, block, block + 1, 3 * block + 5, std::size_t{1009}}) {
        cuts.push_back(whole(n));
    }
    const int table = 0;  // replaced by cut::slices() with its own table
    const std::vector<int> rows{0, 2, 4, 1, 3, 5};
    const std::vector<int> scattered{3, 0, 5, 1, 4, 2};
    const std::vector<int> in_order{0, 1, 2, 3, 4};
    const zeropp::slice_order by_rows{.groups = 3, .group_stride = 2, .index_stride = 1};
    const zeropp::slice_order by_table{.groups = 3, .group_stride = 9, .index_stride = 9, .table = &table};
    for (const std::size_t n : {std::size_t{3}, std::size_t{13}, 5 * block - 3, 6 * block + 1, 11 * block}) {
        const std::size_t slice = (n + 5) / 6;
        cuts.push_back({"rows " + std::to_string(n), n, rows, by_rows, 0, slice, 0, 6});
        cuts.push_back({"scattered " + std::to_string(n), n, scattered, by_table, 0, slice, 0, 6});
        cuts.push_back({"run of slots " + std::to_string(n), n, scattered, by_table, 0, slice, 2, 3});
        cuts.push_back({"ranks " + std::to_string(n), n, in_order, {}, 0, (n + 4) / 5, 0, 5});
    }
    // Second and third chunk of shards of 2.5 blocks.
    const std::size_t n = 15 * block;
    cuts.push_back({"second chunk", n - 2, scattered, by_table, block, block, 0, 6});
    cuts.push_back({"last chunk", n - 2, rows, by_rows, 2 * block, block / 2, 0, 6});
    cuts.push_back({"last chunk, one slot", n - 2, rows, by_rows, 2 * block, block / 2, 5, 1});
    cuts.push_back({"chunk of odd length", n, rows, by_rows, 5, 37, 1, 4});
    // The last ranks' shards end before the chunk begins.
    cuts.push_back({"nothing left", 5 * block + 3, rows, by_rows, block / 2, block, 0, 6});
    cuts.push_back({"chunk beyond all slices", 4, in_order, {}, 1, 8, 0, 5});
    return cuts;
}

// ---- the laws

inline constexpr std::uint8_t patterns[] = {0xa5, 0x5a};

/// Messages of a cut's slots, one after another.
inline std::vector<std::uint8_t> reference_messages(const reference_format& f, const cut& c,
                                                    const std::vector<float>& tensor) {
    std::vector<std::uint8_t> messages;
    for (int s = 0; s != c.slots; ++s) {
        std::vector<float> values;
        for (const std::size_t i : c.carried(s)) values.push_back(tensor[i]);
        const auto message = f.message(values, c.count);
        messages.insert(messages.end(), message.begin(), message.end());
    }
    return messages;
}

/// Sums over the contributors of each slot's elements.
inline std::vector<std::vector<float>> reference_sums(const reference_format& f, const cut& c,
                                                      const std::vector<std::uint8_t>& messages, int contributors) {
    std::vector<std::vector<float>> sums;
    const std::size_t bytes = f.message_bytes(c.count);
    for (int s = 0; s != c.slots; ++s) {
        const std::size_t n = c.carried(s).size();
        std::vector<float> sum;
        for (int k = 0; k != contributors; ++k) {
            const auto slot = static_cast<std::size_t>(k * c.slots + s);
            const auto values = f.elements(messages.data() + slot * bytes, c.count, n);
            if (k == 0) sum = values;
            for (std::size_t i = 0; k != 0 && i != n; ++i) sum[i] = float_sum(sum[i], values[i]);
        }
        sums.push_back(sum);
    }
    return sums;
}

/// Messages of `contributors` contributors with different values.
inline std::vector<std::uint8_t> contributions(const reference_format& f, const cut& c, int contributors) {
    std::vector<std::uint8_t> messages;
    for (int k = 0; k != contributors; ++k) {
        const auto one = reference_messages(f, c, mixed_floats(c.elements, static_cast<std::uint64_t>(100 + k)));
        messages.insert(messages.end(), one.begin(), one.end());
    }
    return messages;
}

inline std::vector<std::byte> as_bytes(const std::vector<std::uint8_t>& values) {
    std::vector<std::byte> bytes(values.size());
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), values.size());
    return bytes;
}

inline void require_bytes(const std::string& what, guarded<std::byte>& actual,
                          const std::vector<std::uint8_t>& expected) {
    const auto bytes = actual.values();
    const auto wanted = as_bytes(expected);
    const auto differs = std::mismatch(bytes.begin(), bytes.end(), wanted.begin(), wanted.end());
    INFO(what);
    REQUIRE(bytes.size() == wanted.size());
    const std::ptrdiff_t first_wrong_byte = differs.first - bytes.begin();
    CHECK(first_wrong_byte == static_cast<std::ptrdiff_t>(bytes.size()));
    const bool written_within = actual.intact();
    CHECK(written_within);
}

/// Checks that of `tensor`, which held `before`, only the elements of the cut have changed, to the expected values.
template <class T, class Expected>
void require_elements(const std::string& what, const cut& c, guarded<T>& tensor, const std::vector<T>& before,
                      Expected expected) {
    const std::vector<T> after = tensor.values();
    std::vector<bool> carried(c.elements);
    std::size_t wrong = 0;
    for (int s = 0; s != c.slots; ++s) {
        const auto indices = c.carried(s);
        for (std::size_t i = 0; i != indices.size(); ++i) {
            carried[indices[i]] = true;
            if (!rounds_to<T>(expected(s, i, indices[i]), after[indices[i]])) ++wrong;
        }
    }
    for (std::size_t i = 0; i != c.elements; ++i) {
        if (!carried[i] && std::memcmp(&after[i], &before[i], sizeof(T)) != 0) ++wrong;
    }
    INFO(what);
    CHECK(wrong == 0);
    const bool written_within = tensor.intact();
    CHECK(written_within);
}

template <class T, class Q>
void check_encode(const auto& exec, const Q& q, const cut& c) {
    using codec = zeropp::codec<std::remove_cvref_t<decltype(exec)>>;
    const reference_format& f = reference_of<Q>::format;
    const std::string what = std::string(zeropp::short_text(q.name()).str()) + " encode " + c.what;
    const std::vector<T> elements = elements_from<T>(mixed_floats(c.elements, 51));
    std::vector<float> floats;
    for (const T x : elements) floats.push_back(as_float(x));
    const auto expected = reference_messages(f, c, floats);
    for (const std::uint8_t pattern : patterns) {
        guarded<T> tensor(elements, pattern);
        guarded<std::byte> messages(expected.size(), pattern);
        codec::write(exec, q, static_cast<const T*>(tensor.data()), c.slices(), messages.data());
        exec.wait();
        require_bytes(what, messages, expected);
    }
}

template <class T, class Q>
void check_decode(const auto& exec, const Q& q, const cut& c) {
    using codec = zeropp::codec<std::remove_cvref_t<decltype(exec)>>;
    const reference_format& f = reference_of<Q>::format;
    const std::string what = std::string(zeropp::short_text(q.name()).str()) + " decode " + c.what;
    const auto messages = contributions(f, c, 1);
    const auto values = reference_sums(f, c, messages, 1);
    for (const std::uint8_t pattern : patterns) {
        guarded<std::byte> source(as_bytes(messages), pattern);
        guarded<T> tensor(c.elements, pattern);
        const auto before = tensor.values();
        codec::read(exec, zeropp::message_sum{q, static_cast<const std::byte*>(source.data())}, c.slices(),
                    tensor.data());
        exec.wait();
        require_elements<T>(what, c, tensor, before,
                            [&](int s, std::size_t i, std::size_t) { return values[static_cast<std::size_t>(s)][i]; });
    }
}

template <class From, class To>
void check_reduce_encode(const auto& exec, const From& from, const To& to, const cut& c, int contributors) {
    using codec = zeropp::codec<std::remove_cvref_t<decltype(exec)>>;
    const std::string what = std::string(zeropp::short_text(from.name()).str()) + " to " +
                             std::string(zeropp::short_text(to.name()).str()) + " reduce_encode of " +
                             std::to_string(contributors) + ", " + c.what;
    const auto messages = contributions(reference_of<From>::format, c, contributors);
    std::vector<std::uint8_t> expected;
    for (const auto& sum : reference_sums(reference_of<From>::format, c, messages, contributors)) {
        const auto message = reference_of<To>::format.message(sum, c.count);
        expected.insert(expected.end(), message.begin(), message.end());
    }
    for (const std::uint8_t pattern : patterns) {
        guarded<std::byte> source(as_bytes(messages), pattern);
        guarded<std::byte> sums(expected.size(), pattern);
        codec::write(exec, to, zeropp::message_sum{from, static_cast<const std::byte*>(source.data()), contributors},
                     c.slices(), sums.data());
        exec.wait();
        require_bytes(what, sums, expected);
    }
}

template <class T, class From>
void check_reduce_decode(const auto& exec, const From& from, const cut& c, int contributors, float divisor,
                         zeropp::epilogue f) {
    using codec = zeropp::codec<std::remove_cvref_t<decltype(exec)>>;
    const std::string what = std::string(zeropp::short_text(from.name()).str()) + " reduce_decode of " +
                             std::to_string(contributors) + (f.accumulate ? ", accumulated" : "") +
                             (f.drop_non_finite ? " on what is finite, " : ", ") + c.what;
    const auto messages = contributions(reference_of<From>::format, c, contributors);
    const auto sums = reference_sums(reference_of<From>::format, c, messages, contributors);
    for (const std::uint8_t pattern : patterns) {
        guarded<std::byte> source(as_bytes(messages), pattern);
        // The tensor's old values count only if the sum is added to them.
        std::vector<T> before = elements_from<T>(normal_floats(c.elements, 61));
        if (!f.accumulate) before = guarded<T>(c.elements, pattern).values();
        if (f.drop_non_finite) {
            constexpr float infinity = std::numeric_limits<float>::infinity();
            constexpr float bad[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()};
            for (std::size_t i = 0; i < before.size(); i += 5) {
                before[i] = zeropp::element_traits<T>::from_float(bad[i / 5 % 3]);
            }
        }
        guarded<T> tensor(before, pattern);
        codec::read(exec,
                    zeropp::message_sum{from, static_cast<const std::byte*>(source.data()), contributors, divisor},
                    c.slices(), tensor.data(), f);
        exec.wait();
        require_elements<T>(what, c, tensor, before, [&](int s, std::size_t i, std::size_t index) {
            const float result = float_quotient(sums[static_cast<std::size_t>(s)][i], divisor);
            const float present = as_float(before[index]);
            if (!f.accumulate) return result;
            return float_sum(f.drop_non_finite && !std::isfinite(present) ? 0.0f : present, result);
        });
    }
}

/// Checks a codec with one quantizer and one element type.
template <class T, class Q>
void check_codec(const auto& exec, const Q& q) {
    for (const cut& c : telling_cuts(static_cast<std::size_t>(Q::block_size))) {
        check_encode<T>(exec, q, c);
        check_decode<T>(exec, q, c);
        check_reduce_decode<T>(exec, q, c, 3, 1.0f, {});
        check_reduce_decode<T>(exec, q, c, 2, 6.0f, {.accumulate = true});
        check_reduce_decode<T>(exec, q, c, 1, 1.0f, {.accumulate = true, .drop_non_finite = true});
    }
}

/// Checks sums of messages of one quantizer that another one encodes, for any block sizes.
template <class From, class To>
void check_between(const auto& exec, const From& from, const To& to) {
    for (const cut& c : telling_cuts(static_cast<std::size_t>(std::max(From::block_size, To::block_size)))) {
        for (const int contributors : {1, 2, 3, 4}) check_reduce_encode(exec, from, to, c, contributors);
    }
}

}  // namespace zeropp_test
