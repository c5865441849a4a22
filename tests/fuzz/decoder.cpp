// Messages of any bytes, as from a rank gone mad: quantizers of every kind decode, sum and encode them again without
// touching a byte outside, which AddressSanitizer sees since every array is an allocation of its exact size; and what
// comes out is what the documentation says of these bits, read one by one. Exact differences, too: their decoder
// refuses what the reference refuses.

#include "fuzz/decoder_input.hpp"
#include "fuzz/reader.hpp"
#include "support/exact_reader.hpp"
#include "support/hadamard_reference.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/named.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace {

using namespace zeropp;
using namespace zeropp_test;
using host_codec = codec<host>;

/// An allocation of exactly `size` elements, filled with the bytes of `source` over and over.
template <class T>
std::unique_ptr<T[]> exactly(std::size_t size, std::span<const std::uint8_t> source) {
    std::unique_ptr<T[]> memory(new T[size]);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(memory.get());
    for (std::size_t i = 0; i != size * sizeof(T); ++i) bytes[i] = source.empty() ? 0 : source[i % source.size()];
    return memory;
}

/// The elements of a message before they are rotated back.
template <class Q>
std::vector<float> elements_of(Q q, const std::byte* message, std::size_t count, std::size_t n) {
    constexpr auto block = static_cast<std::size_t>(Q::block_size);
    constexpr auto bits = static_cast<std::size_t>(Q::code_bits);
    using params = typename Q::params;
    // Five codes in a byte, 26 bytes for 128.
    const auto ternary_bytes = [](std::size_t elements) { return elements / 128 * 26 + ceil_div(elements % 128, 5); };
    const std::size_t codes_end = ternary_quantizer<Q> ? ternary_bytes(count) : ceil_div(count * bits, 8);
    const std::size_t params_at = round_up(codes_end, alignof(params));
    std::vector<float> values(n);
    for (std::size_t i = 0; i != n; ++i) {
        std::uint32_t code = 0;
        if (ternary_quantizer<Q>) {
            code = static_cast<std::uint32_t>(message[ternary_bytes(i / 128 * 128) + i % 128 / 5]) % 243;
            for (std::size_t digit = i % 128 % 5; digit != 0; --digit) code /= 3;
            code %= 3;
        }
        for (std::size_t b = 0; b != bits && !ternary_quantizer<Q>; ++b) {
            const std::size_t at = i * bits + b;
            code |= (static_cast<std::uint32_t>(message[at / 8]) >> at % 8 & 1u) << b;
        }
        params p;
        if constexpr (params_bytes<Q> != 0) std::memcpy(&p, message + params_at + i / block * sizeof p, sizeof p);
        values[i] = q.decode(code, p);
    }
    return values;
}

template <class Q>
std::vector<float> rotated_back(std::vector<float> values) {
    if constexpr (rotating_quantizer<Q>) return rotated(std::move(values), Q::hadamard_size, true);
    return values;
}

template <class T>
void require_same(T given, T expected) {
    const float a = element_traits<T>::to_float(given);
    const float b = element_traits<T>::to_float(expected);
    require(a == b || (std::isnan(a) && std::isnan(b)), "the elements that the message's bits say");
}

template <class T, class Q>
void decodes(const decoder_input& input, std::span<const std::uint8_t> bytes) {
    const Q q;
    const slices where = input.where(static_cast<std::size_t>(Q::block_size));
    const std::size_t stride = wire_bytes(q, where.count);
    const auto slots = static_cast<std::size_t>(where.slots);
    const auto messages = exactly<std::byte>(slots * stride, bytes);
    const auto tensor = exactly<T>(where.part.count(), {});
    host_codec::read(host(), message_sum{q, messages.get()}, where, tensor.get());
    std::vector<T> expected(where.part.count(), element_traits<T>::from_float(0.0f));
    for (std::size_t s = 0; s != slots; ++s) {
        const auto slot = static_cast<int>(s);
        const auto values = rotated_back<Q>(elements_of(q, messages.get() + s * stride, where.count, where.size(slot)));
        for (std::size_t i = 0; i != values.size(); ++i) {
            expected[where.offset(slot) + i] = element_traits<T>::from_float(values[i]);
        }
    }
    for (std::size_t i = 0; i != expected.size(); ++i) require_same(tensor[i], expected[i]);
}

template <class Q>
void sums(const decoder_input& input, std::span<const std::uint8_t> bytes) {
    const Q q;
    const slices where = input.where(static_cast<std::size_t>(Q::block_size));
    const std::size_t stride = wire_bytes(q, where.count);
    const auto slots = static_cast<std::size_t>(where.slots);
    const auto contributors = static_cast<std::size_t>(input.number_of_contributors());
    const auto messages = exactly<std::byte>(contributors * slots * stride, bytes);
    const auto tensor = exactly<float>(where.part.count(), {});
    std::fill_n(tensor.get(), where.part.count(), 1.5f);
    const epilogue last{.accumulate = input.accumulates()};
    host_codec::read(host(), message_sum{q, messages.get(), input.number_of_contributors(), 3.0f}, where, tensor.get(),
                     last);
    std::vector<float> expected(where.part.count(), 1.5f);
    for (std::size_t s = 0; s != slots; ++s) {
        const auto slot = static_cast<int>(s);
        std::vector<float> sum;
        for (std::size_t c = 0; c != contributors; ++c) {
            const std::byte* const message = messages.get() + (c * slots + s) * stride;
            const auto values = elements_of(q, message, where.count, where.size(slot));
            if (c == 0) sum = values;
            for (std::size_t i = 0; c != 0 && i != sum.size(); ++i) sum[i] += values[i];
        }
        sum = rotated_back<Q>(std::move(sum));
        for (std::size_t i = 0; i != sum.size(); ++i) {
            float& to = expected[where.offset(slot) + i];
            to = (last.accumulate ? to : 0.0f) + sum[i] / 3.0f;
        }
    }
    for (std::size_t i = 0; i != expected.size(); ++i) require_same(tensor[i], expected[i]);
}

/// The sums, encoded again: the same as of sums that have been decoded first.
template <class Q>
void encodes_sums(const decoder_input& input, std::span<const std::uint8_t> bytes) {
    const Q q;
    const block_integer<8, 256> to;
    const slices where = input.where(static_cast<std::size_t>(Q::block_size));
    const auto slots = static_cast<std::size_t>(where.slots);
    const auto contributors = static_cast<std::size_t>(input.number_of_contributors());
    const auto messages = exactly<std::byte>(contributors * slots * wire_bytes(q, where.count), bytes);
    const std::size_t sum_bytes = slots * wire_bytes(to, where.count);
    const auto sums = exactly<std::byte>(sum_bytes, bytes);
    const auto expected = exactly<std::byte>(sum_bytes, {});
    const auto tensor = exactly<float>(where.part.count(), {});
    const int from = input.number_of_contributors();
    host_codec::write(host(), to, message_sum{q, messages.get(), from}, where, sums.get());
    host_codec::read(host(), message_sum{q, messages.get(), from}, where, tensor.get());
    host_codec::write(host(), to, tensor.get(), where, expected.get());
    require(sum_bytes == 0 || std::memcmp(sums.get(), expected.get(), sum_bytes) == 0,
            "encoded sums to be what sums are encoded as");
}

template <class Q>
void try_quantizer(const decoder_input& input, std::span<const std::uint8_t> bytes) {
    switch (input.operation()) {
    case decoding::to_fp32:
        return decodes<float, Q>(input, bytes);
    case decoding::to_fp16:
        return decodes<half, Q>(input, bytes);
    case decoding::to_bf16:
        return decodes<bfloat16, Q>(input, bytes);
    case decoding::sums:
        return sums<Q>(input, bytes);
    case decoding::encoded_sums:
        return encodes_sums<Q>(input, bytes);
    }
}

template <class T>
bits_of_elements bits_of(const T* elements, std::size_t n) {
    bits_of_elements bits(n);
    for (std::size_t i = 0; i != n; ++i) bits[i] = elements[i].bits;
    return bits;
}

/// Exact differences, as the reference reads them or refuses them, and encoded again.
template <class T>
void decodes_exactly(const decoder_input& input, std::span<const std::uint8_t> bytes) {
    const slices where = input.where_exact();
    const std::size_t stride = input.exact_stride(), tiles = ceil_div(where.count, exact_differences::tile_size);
    const auto messages = exactly<std::byte>(static_cast<std::size_t>(where.slots) * stride, bytes);
    const std::vector<T> old = decoder_input::old_elements<T>(where.part.count());
    const auto tensor = exactly<T>(old.size(), {});
    std::copy(old.begin(), old.end(), tensor.get());
    int wrong = where.slots;
    std::vector<std::optional<bits_of_elements>> expected;
    for (int s = 0; s != where.slots; ++s) {
        const T* const before = where.size(s) == 0 ? nullptr : old.data() + where.offset(s);
        exact_reader message({messages.get() + static_cast<std::size_t>(s) * stride, stride});
        expected.push_back(
            message.elements(0, tiles, bits_of(before, where.size(s)), std::is_same_v<T, half> ? 10 : 7));
        if (where.size(s) == 0) expected.back() = bits_of_elements();
        if (!expected.back() && wrong == where.slots) wrong = s;
    }
    try {
        host_codec::read_exact(host(), messages.get(), stride, where, tensor.get());
        require(wrong == where.slots, "an error for bytes that are no message");
    } catch (const integrity_error& e) {
        require(e.source() == wrong, "an error that names the first rank of which bytes are no message");
    }
    for (int s = 0; s != where.slots; ++s) {
        const auto slot = static_cast<std::size_t>(s);
        if (!expected[slot] || expected[slot]->empty()) continue;
        const slices one = slices::single(where.part.count(), where.offset(s), where.size(s));
        require(bits_of(tensor.get() + where.offset(s), where.size(s)) == expected[slot],
                "the elements that the message's bits say");
        const std::size_t most = format_of<exact_differences>.bytes(one.count);
        const auto room = exactly<std::byte>(most, bytes);
        std::uint64_t size = 0;
        host_codec::write_exact(host(), difference{static_cast<const T*>(tensor.get()), old.data()}, one, room.get(),
                                &size);
        require(size <= most && size % exact_differences::word == 0, "a message of at most the most bytes");
        const auto message = exactly<std::byte>(size, bytes);
        host_codec::place_exact(host(), one, room.get(), message.get(), size);
        std::vector<T> again = old;
        host_codec::read_exact(host(), message.get(), size, one, again.data());
        require(bits_of(again.data() + where.offset(s), where.size(s)) == expected[slot],
                "the elements that were encoded");
    }
}

template <class>
struct each;
template <class... Quantizers>
struct each<std::variant<Quantizers...>> {
    static constexpr std::array tries{&try_quantizer<Quantizers>..., &decodes_exactly<bfloat16>,
                                      &decodes_exactly<half>};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr auto& tries = each<fuzzed_quantizers::variant>::tries;
    reader input(data, size);
    const decoder_input parameters = decoder_input::take(input);
    tries[parameters.quantizer % tries.size()](parameters, input.rest());
    return 0;
}
