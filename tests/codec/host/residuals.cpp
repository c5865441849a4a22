#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/residual_storage.hpp>

#include "codec/host/abilities.hpp"
#include "support/catch.hpp"
#include "support/hadamard_reference.hpp"
#include "support/host_targets.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::bfloat16;
using zeropp::block_integer;
using zeropp::cast_to;
using zeropp::feedback;
using zeropp::hadamard;
using zeropp::signed_absmax;

/// A quantizer in words of the reference: its format, and the window of its rotation, or 1.
template <class Q>
struct rotated_format {
    static constexpr reference_format format = reference_of<Q>::format;
    static constexpr std::size_t window = 1;
};
template <class Base, int Window>
struct rotated_format<hadamard<Base, Window>> {
    static constexpr reference_format format = reference_of<Base>::format;
    static constexpr std::size_t window = Window;
};

struct settings {
    bool any_held = true;
    bool in_place = false;
};

/// The elements of the slices of a cut; a slot's residuals are of that many.
std::size_t slice_of(const cut& c) { return (c.elements + c.ranks_by_slot.size() - 1) / c.ranks_by_slot.size(); }

/// Residuals of all slots: anything that may have been held.
std::vector<std::uint8_t> some_residuals(const reference_format& storage, const cut& c) {
    std::vector<std::uint8_t> held;
    for (int s = 0; s != c.slots; ++s) {
        const auto slot =
            storage.message(normal_floats(slice_of(c), static_cast<std::uint64_t>(70 + s), 0.3), slice_of(c));
        held.insert(held.end(), slot.begin(), slot.end());
    }
    return held;
}

/// What one slot's message encodes of `values`, the message, and the slot's residuals afterwards, by the documentation:
/// `kept` holds those of the whole slice, of which elements from `c.begin` on are replaced.
std::vector<std::uint8_t> expected_message(const reference_format& f, std::size_t window, std::vector<float> values,
                                           const cut& c, const reference_format& storage, const std::uint8_t* held,
                                           std::uint8_t* kept) {
    const std::size_t n = values.size();
    values = rotated(values, window, false);
    std::vector<float> old(n, 0.0f);
    if (held != nullptr) {
        const auto slice = storage.elements(held, slice_of(c), c.begin + n);
        for (std::size_t i = 0; i != n; ++i) {
            old[i] = slice[c.begin + i];
            values[i] = float_sum(values[i], old[i]);
        }
    }
    const auto message = f.message(values, c.count);
    const auto decoded = f.elements(message.data(), c.count, n);
    std::vector<float> next(n);
    for (std::size_t i = 0; i != n; ++i) {
        next[i] = float_sum(values[i], -decoded[i]);
        if (!is_finite(static_cast<double>(next[i]))) next[i] = old[i];
    }
    if (n == 0) return message;
    const auto part = storage.message(next, n);
    const std::size_t bits = static_cast<std::size_t>(storage.bits);
    const std::size_t numbers = storage.stored_bytes() * static_cast<std::size_t>(storage.numbers_per_block());
    std::memcpy(kept + c.begin * bits / 8, part.data(), (n * bits + 7) / 8);
    std::memcpy(kept + storage.params_offset(slice_of(c)) + c.begin / storage.block_size * numbers,
                part.data() + storage.params_offset(n), storage.blocks(n) * numbers);
    return message;
}

/// Messages and residuals of all slots, byte by byte. `values(s)` are the elements of slot s, and
/// encode(residuals, messages) calls the codec.
template <class Q, class Storage>
void check_slots(const cut& c, const settings& with, auto values, auto encode) {
    const reference_format& f = rotated_format<Q>::format;
    const reference_format& storage = reference_of<Storage>::format;
    const auto held = some_residuals(storage, c);
    const std::size_t bytes = storage.message_bytes(slice_of(c));
    guarded<std::byte> held_bytes(as_bytes(held), 0x11);
    guarded<std::byte> apart(held.size(), 0x5a);
    guarded<std::byte>& kept = with.in_place ? held_bytes : apart;
    std::vector<std::uint8_t> expected_kept = with.in_place ? held : std::vector<std::uint8_t>(held.size(), 0x5a);
    std::vector<std::uint8_t> expected;
    for (int s = 0; s != c.slots; ++s) {
        const std::size_t at = static_cast<std::size_t>(s) * bytes;
        const auto message = expected_message(f, rotated_format<Q>::window, values(s), c, storage,
                                              with.any_held ? held.data() + at : nullptr, expected_kept.data() + at);
        expected.insert(expected.end(), message.begin(), message.end());
    }
    const feedback<Storage> residuals{Storage{}, with.any_held ? held_bytes.data() : nullptr, kept.data(), slice_of(c)};
    guarded<std::byte> messages(expected.size(), 0xa5);
    encode(residuals, messages.data());
    const std::string what = c.what + (with.any_held ? "" : ", nothing held") + (with.in_place ? ", in place" : "");
    require_bytes("messages, " + what, messages, expected);
    require_bytes("residuals, " + what, kept, expected_kept);
    if (!with.in_place) require_bytes("held, " + what, held_bytes, held);
}

/// Residuals are blocks of the quantizer's size: chunks begin with one.
std::vector<cut> cuts_at_blocks(std::size_t block) {
    std::vector<cut> cuts;
    for (const cut& c : telling_cuts(block))
        if (c.begin % block == 0) cuts.push_back(c);
    return cuts;
}

template <class Q, class Storage>
void check_feedback(const cut& c, const settings& with) {
    std::vector<float> tensor = mixed_floats(c.elements, 41);
    // Blocks that are lost, whose residuals stay; and others between them.
    for (std::size_t i = 150; i < tensor.size(); i += 400)
        tensor[i] = i % 3 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    check_slots<Q, Storage>(
        c, with, [&](int s) { return carried_values(c, s, tensor); },
        [&](const auto& residuals, std::byte* messages) {
            host_codec::write(zeropp::host{}, Q{}, tensor.data(), c.slices(), messages, residuals);
        });
}

using q4 = block_integer<4, 128>;

}  // namespace

TEST_CASE("residuals are what a message lacks, and are added to the next", "[codec][host][feedback]") {
    using rotating = hadamard<block_integer<4, 128, signed_absmax>>;
    on_every_target([] {
        for (const cut& c : cuts_at_blocks(128)) {
            for (const settings& with : {settings{}, settings{.any_held = false}, settings{.in_place = true}}) {
                check_feedback<rotating, cast_to<float>>(c, with);
                check_feedback<q4, block_integer<8, 128>>(c, with);
            }
        }
    });
    for (const cut& c : cuts_at_blocks(128)) check_feedback<q4, cast_to<bfloat16>>(c, {.in_place = true});
}

TEST_CASE("residuals of sums", "[codec][host][feedback]") {
    using from = block_integer<8, 64>;
    const reference_format& f = reference_of<from>::format;
    for (const cut& c : cuts_at_blocks(128)) {
        const auto messages = contributions(f, c, 3);
        const auto sums = reference_sums(f, c, messages, 3);
        // Residuals of a sum that stays rotated are those of the base quantizers.
        const auto check = [&](const auto& sum_of, const auto& to) {
            check_slots<q4, cast_to<bfloat16>>(
                c, {.in_place = true}, [&](int s) { return sums[static_cast<std::size_t>(s)]; },
                [&](const auto& residuals, std::byte* encoded_sums) {
                    host_codec::write(zeropp::host{}, to, zeropp::message_sum{sum_of, as_bytes(messages).data(), 3},
                                      c.slices(), encoded_sums, residuals);
                });
        };
        check(from{}, q4{});
        check(hadamard<from, 64>{}, hadamard<q4, 64>{});
    }
}

TEST_CASE("differences are encoded in place of a tensor", "[codec][host][difference]") {
    for (const cut& c : cuts_at_blocks(128)) {
        const std::vector<float> tensor = mixed_floats(c.elements, 51);
        const std::vector<bfloat16> base = elements_from<bfloat16>(normal_floats(c.elements, 52));
        std::vector<float> differences(c.elements);
        for (std::size_t i = 0; i != c.elements; ++i) differences[i] = float_sum(tensor[i], -as_float(base[i]));
        const zeropp::difference d{tensor.data(), base.data()};
        std::vector<std::byte> expected;
        for (int s = 0; s != c.slots; ++s) {
            append(expected, reference_of<q4>::format.message(carried_values(c, s, differences), c.count));
        }
        CAPTURE(c.what);
        const bool as_documented = encoded(q4{}, d, c.slices()) == expected;
        CHECK(as_documented);
        check_slots<q4, cast_to<bfloat16>>(
            c, {}, [&](int s) { return carried_values(c, s, differences); },
            [&](const auto& residuals, std::byte* messages) {
                host_codec::write(zeropp::host{}, q4{}, d, c.slices(), messages, residuals);
            });
    }
}

TEST_CASE("residuals of blocks larger than what is encoded at once", "[codec][host][feedback]") {
    const cut c = whole(3 * 4096 + 100);
    check_feedback<block_integer<4, 4096>, block_integer<8, 64>>(c, {.in_place = true});
    // And of blocks of residuals larger than those of codes, the last of which is not whole.
    on_every_target([] { check_feedback<q4, block_integer<8, 1024>>(whole(1500), {}); });
}
