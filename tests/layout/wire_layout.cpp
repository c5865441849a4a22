#include <zeropp/layout/wire_layout.hpp>

#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>

#include "support/catch.hpp"
#include "support/integer_models.hpp"
#include "support/reference.hpp"
#include "support/samples.hpp"
#include "support/toy_quantizer.hpp"

#include <cstddef>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::asymmetric;
using zeropp::bfloat16;
using zeropp::block_integer;
using zeropp::cast_to;
using zeropp::half;
using zeropp::message_place;
using zeropp::signed_absmax;
using zeropp::wire_layout;

std::vector<std::size_t> telling_counts(std::size_t block) {
    std::vector<std::size_t> counts;
    for (std::size_t n = 0; n != 70; ++n) counts.push_back(n);
    for (const std::size_t n : {block, 2 * block, 3 * block, 1000 * block}) {
        for (const std::size_t more : {0u, 1u, 7u}) {
            counts.push_back(n + more);
            counts.push_back(n - more);
        }
    }
    for (const std::size_t n : {1009u, 7919u, 104729u}) counts.push_back(n);
    return counts;
}

template <class Q>
void check_layout(const reference_format& f) {
    static_assert(zeropp::params_bytes<Q> % alignof(typename Q::params) == 0 || zeropp::params_bytes<Q> == 0);
    CHECK(zeropp::params_bytes<Q> == f.stored_bytes() * static_cast<std::size_t>(f.numbers_per_block()));
    std::size_t wrong = 0;
    for (const std::size_t n : telling_counts(f.block_size)) {
        const wire_layout<Q> layout(n);
        if (layout.elements != n || layout.blocks != f.blocks(n) || layout.params_offset != f.params_offset(n) ||
            layout.bytes != f.message_bytes(n) || zeropp::wire_bytes(Q{}, n) != layout.bytes) {
            ++wrong;
            CAPTURE(Q::name().str(), n);
            CHECK(layout.params_offset == f.params_offset(n));
            CHECK(layout.bytes == f.message_bytes(n));
        }
        if (layout.bytes % 16 != 0 || layout.params_offset % alignof(typename Q::params) != 0) ++wrong;
    }
    // Whole blocks end on bytes.
    for (const std::size_t block : {0u, 1u, 2u, 77u}) {
        const std::size_t bits = block * f.block_size * static_cast<std::size_t>(f.bits);
        if (bits % 8 != 0 || zeropp::code_bytes<Q>(block * f.block_size) != bits / 8) ++wrong;
    }
    CHECK(wrong == 0);
}

template <int Bits, int BlockSize, class Scheme, class Scale>
void check_integer() {
    check_layout<block_integer<Bits, BlockSize, Scheme, Scale>>(
        {scheme_named<Scheme>, Bits, BlockSize, format_of<Scale>});
}

}  // namespace

TEST_CASE("layouts of messages follow the formula", "[quantizer][wire_layout]") {
    check_integer<2, 8, zeropp::symmetric, float>();
    check_integer<3, 8, signed_absmax, half>();
    check_integer<4, 128, zeropp::symmetric, half>();
    check_integer<4, 128, asymmetric, half>();
    check_integer<5, 64, asymmetric, float>();
    check_integer<6, 128, zeropp::symmetric, bfloat16>();
    check_integer<7, 16, asymmetric, bfloat16>();
    check_integer<8, 2048, signed_absmax, float>();
    check_layout<cast_to<float>>({scheme::lossless, 32, 256, fp32_format});
    check_layout<cast_to<half>>({scheme::lossless, 16, 256, fp16_format});
    check_layout<cast_to<bfloat16>>({scheme::lossless, 16, 256, bf16_format});
}

TEST_CASE("sizes of messages by hand", "[quantizer][wire_layout]") {
    // 1000 elements of 4 bits are 500 bytes, 8 blocks have 8 scales of 2 bytes: 516, padded to 528.
    constexpr wire_layout<block_integer<4, 128, zeropp::symmetric, half>> a(1000);
    static_assert(a.blocks == 8 && a.params_offset == 500 && a.bytes == 528);
    // 1000 bytes, 4 scales of 4 bytes: 1016, padded to 1024.
    static_assert(zeropp::wire_bytes(block_integer<8, 256>{}, 1000) == 1024);
    // 3 elements of 6 bits are 18 bits: 3 bytes. The scale begins at 4 and ends at 8.
    constexpr wire_layout<block_integer<6, 128>> b(3);
    static_assert(b.blocks == 1 && b.params_offset == 4 && b.bytes == 16);
    // 100 elements of 3 bits are 38 bytes; 13 blocks have two halves each: 38 + 52 = 90, padded to 96.
    static_assert(zeropp::wire_bytes(block_integer<3, 8, asymmetric, half>{}, 100) == 96);
    // A user's parameters of one byte need no alignment: 5 bytes of codes, 2 of parameters.
    constexpr wire_layout<toy_quantizer> c(17);
    static_assert(c.blocks == 2 && c.params_offset == 5 && c.bytes == 16);
    static_assert(zeropp::wire_bytes(cast_to<half>{}, 9) == 32);
    SUCCEED();
}

TEST_CASE("five codes of three values take a byte, and tensors begin with a block", "[quantizer][wire_layout]") {
    using three_levels = zeropp::lloyd_max<3, 128>;
    // 7 blocks of 26 bytes, and 104 elements in 21: 203, with 8 scales of a byte 211, padded to 224.
    constexpr wire_layout<three_levels> a(1000);
    static_assert(a.blocks == 8 && a.codes_end == 203 && a.params_offset == 203 && a.bytes == 224);
    static_assert(zeropp::wire_bytes(three_levels{}, 128) == 32 && zeropp::wire_bytes(three_levels{}, 0) == 0);
    // Groups are a block, and at most 128 elements.
    static_assert(zeropp::code_bytes<zeropp::lloyd_max<3, 32>>(96) == 3 * 7);
    static_assert(zeropp::code_bytes<zeropp::lloyd_max<3, 2048>>(2048 + 129) == 17 * 26 + 1);
    // Behind a tensor of 1 and one of 300 elements, for which a list reserves 5 blocks, 4 of which they have.
    constexpr message_place third = message_place().next(1).next(300);
    constexpr wire_layout<three_levels> b(6, third);
    static_assert(third.blocks(128) == 4 && b.codes_at(third) == 4 * 26 && b.codes_end == 4 * 26 + 2);
    static_assert(b.blocks == 5 && b.params_offset == 106 && b.bytes == 112);
    SUCCEED();
}

TEST_CASE("a message of nothing has no bytes", "[quantizer][wire_layout]") {
    static_assert(zeropp::wire_bytes(block_integer<4, 128>{}, 0) == 0);
    static_assert(zeropp::wire_bytes(cast_to<float>{}, 0) == 0);
    constexpr wire_layout<block_integer<4, 128>> none(0);
    static_assert(none.blocks == 0 && none.params_offset == 0);
    SUCCEED();
}

TEST_CASE("sizes beyond 32 bits", "[quantizer][wire_layout]") {
    constexpr std::size_t many = (std::size_t{1} << 40) + 1;
    static_assert(zeropp::wire_bytes(cast_to<float>{}, many) == (std::size_t{1} << 42) + 16);
    // 2^38 bytes of codes and 2^35 scales of 2 bytes, and for one element more a byte and a scale.
    static_assert(zeropp::wire_bytes(block_integer<2, 32, zeropp::symmetric, half>{}, many - 1) ==
                  (std::size_t{1} << 38) + (std::size_t{1} << 36));
    static_assert(zeropp::wire_bytes(block_integer<2, 32, zeropp::symmetric, half>{}, many) ==
                  (std::size_t{1} << 38) + (std::size_t{1} << 36) + 16);
    static_assert(zeropp::code_bytes<block_integer<7, 8>>(std::size_t{1} << 61) == std::size_t{7} << 58);
    SUCCEED();
}

TEST_CASE("message_place: every tensor has room for its blocks, whatever their size", "[layout][message_place]") {
    for (const std::size_t block : {8u, 16u, 32u, 64u, 256u, 2048u}) {
        message_place place;
        std::size_t blocks = 0;  // those that there are
        std::size_t elements = 0;
        random_source random(1);
        for (std::size_t t = 0; t != 500; ++t) {
            const std::size_t n = random.below(t % 3 == 0 ? 5 : 700);
            const message_place next = place.next(n);
            REQUIRE(place.elements % message_place::alignment == 0);
            REQUIRE(next.elements >= place.elements + n);
            REQUIRE(next.elements < place.elements + n + message_place::alignment);
            REQUIRE(next.blocks(block) >= place.blocks(block) + (n + block - 1) / block);
            blocks += (n + block - 1) / block;
            elements += n;
            place = next;
        }
        // At most one block's room for each tensor is not used, and one for each 32 elements where blocks are small.
        REQUIRE(place.blocks(block) <= blocks + 500 * (1 + message_place::alignment / block));
        REQUIRE(place.tensors == 500);
        REQUIRE(place.elements < elements + 500 * message_place::alignment);
    }
}

TEST_CASE("message_place: the first tensor is at the start", "[layout][message_place]") {
    CHECK(message_place{}.blocks(256) == 0);
    CHECK(message_place{}.next(256).blocks(256) == 1);
    CHECK(message_place{}.next(257).blocks(256) == 2);
    CHECK(message_place{}.next(0) == message_place{0, 1});
}
