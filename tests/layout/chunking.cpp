#include <zeropp/layout/chunking.hpp>

#include "support/catch.hpp"

#include <cstddef>

using zeropp::automatic_chunks;

TEST_CASE("chunks are automatic by the root of the bytes, from one to sixteen", "[topology][chunking]") {
    constexpr std::size_t kib = 1024;
    CHECK(automatic_chunks(0) == 1);
    CHECK(automatic_chunks(128 * kib - 1) == 1);
    CHECK(automatic_chunks(128 * kib) == 2);
    CHECK(automatic_chunks(2048 * kib - 1) == 7);
    CHECK(automatic_chunks(2048 * kib) == 8);
    CHECK(automatic_chunks(8192 * kib - 1) == 15);
    CHECK(automatic_chunks(8192 * kib) == 16);
    CHECK(automatic_chunks(~std::size_t{0}) == 16);
}

TEST_CASE("an all-reduce sends small tensors whole, and those of two ranks", "[topology][chunking]") {
    constexpr std::size_t kib = 1024, huge = std::size_t{1} << 40;
    CHECK(zeropp::prefers_one_shot(4, 8 * kib, 0));
    CHECK_FALSE(zeropp::prefers_one_shot(4, 8 * kib + 1, huge));
    CHECK(zeropp::prefers_one_shot(1, 128 * kib, 0));
    CHECK_FALSE(zeropp::prefers_one_shot(1, 128 * kib + 1, huge));
    CHECK(zeropp::prefers_one_shot(2, 32 * kib, 0));
    CHECK_FALSE(zeropp::prefers_one_shot(2, 32 * kib + 1, 32 * kib));
    CHECK(zeropp::prefers_one_shot(2, huge, huge));
}

TEST_CASE("what cannot be a number of chunks says so", "[topology][chunking]") {
    CHECK(zeropp::chunks_problem(1).empty());
    CHECK(zeropp::chunks_problem(zeropp::auto_chunks).empty());
    CHECK(zeropp::chunks_problem(0) == "expected at least 1 chunk, given 0");
    CHECK(zeropp::chunks_problem(-2) == "expected at least 1 chunk, given -2");
}
