#include <zeropp/layout/partition.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>

namespace {

using zeropp::partition;

/// Whether the slices follow each other from 0 to count without gap or overlap, none is larger than slice_size(), and
/// only the last non-empty one is smaller.
bool covers_once(const partition& p) {
    std::size_t next = 0;
    for (int rank = 0; rank != p.ranks(); ++rank) {
        if (p.offset(rank) != next) return false;
        const std::size_t left = p.count() - next;
        if (p.size(rank) != std::min(left, p.slice_size())) return false;
        next += p.size(rank);
    }
    return next == p.count() && p.offset(p.ranks()) == p.count();
}

}  // namespace

TEST_CASE("partition covers every element exactly once", "[topology][partition]") {
    for (std::size_t count = 0; count != 200; ++count) {
        for (int ranks = 1; ranks != 40; ++ranks) {
            const partition p(count, ranks);
            if (p.count() == count && p.ranks() == ranks && covers_once(p)) continue;
            FAIL_CHECK(count << " elements over " << ranks << " ranks");
        }
    }
}

TEST_CASE("partition cuts as torch.chunk does: equal slices, then what is left, then nothing",
          "[topology][partition]") {
    const partition p(10, 8);
    CHECK(p.slice_size() == 2);
    for (int rank = 0; rank != 5; ++rank) CHECK(p.size(rank) == 2);
    for (int rank = 5; rank != 8; ++rank) {
        CHECK(p.size(rank) == 0);
        CHECK(p.offset(rank) == 10);
    }
    const partition tail(11, 4);
    CHECK(tail.size(2) == 3);
    CHECK(tail.size(3) == 2);
    CHECK(tail.offset(3) == 9);
    const partition none(0, 3);
    CHECK(none.slice_size() == 0);
    CHECK(none.size(2) == 0);
    CHECK(none.offset(2) == 0);
}

TEST_CASE("partition in rows cuts between them", "[topology][partition]") {
    const partition p(7 * 30, 4, 30);
    CHECK(p.slice_size() == 60);
    CHECK(p.size(0) == 60);
    CHECK(p.size(3) == 30);
    CHECK(p.offset(3) == 180);
    CHECK(covers_once(p));
    // Of a row that is cut short, too.
    const partition cut(100, 3, 30);
    CHECK(cut.slice_size() == 60);
    CHECK(cut.size(1) == 40);
    CHECK(cut.size(2) == 0);
}

TEST_CASE("partition counts in 64 bits", "[topology][partition]") {
    const std::size_t counts[] = {std::size_t{1} << 31, (std::size_t{1} << 32) + 1, (std::size_t{1} << 40) - 7,
                                  (std::size_t{1} << 62) + 3};
    for (const std::size_t count : counts) {
        for (const int ranks : {1, 2, 3, 7, 1000, 65536}) {
            INFO(count << " elements over " << ranks << " ranks");
            CHECK(covers_once(partition(count, ranks)));
        }
    }
    CHECK(partition((std::size_t{1} << 33) + 5, 4).offset(3) == 3 * ((std::size_t{1} << 31) + 2));
}

TEST_CASE("partition is a constant expression", "[topology][partition]") {
    constexpr partition p(7, 2);
    STATIC_REQUIRE(p.size(0) == 4);
    STATIC_REQUIRE(p.size(1) == 3);
    STATIC_REQUIRE(p.offset(1) == 4);
}
