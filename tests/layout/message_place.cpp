#include <zeropp/layout/wire_layout.hpp>

#include "support/catch.hpp"
#include "support/samples.hpp"

#include <cstddef>

using zeropp::message_place;

TEST_CASE("message_place: every tensor has room for its blocks, whatever their size", "[core][message_place]") {
    for (const std::size_t block : {8u, 16u, 32u, 64u, 256u, 2048u}) {
        message_place place;
        std::size_t blocks = 0;  // those that there are
        std::size_t elements = 0;
        zeropp_test::random_source random(1);
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

TEST_CASE("message_place: the first tensor is at the start", "[core][message_place]") {
    CHECK(message_place{}.blocks(256) == 0);
    CHECK(message_place{}.next(256).blocks(256) == 1);
    CHECK(message_place{}.next(257).blocks(256) == 2);
    CHECK(message_place{}.next(0) == message_place{0, 1});
}
