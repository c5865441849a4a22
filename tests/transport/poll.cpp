#include "support/catch.hpp"

#include <zeropp/transport/deadline.hpp>

#include <chrono>
#include <stdexcept>

using zeropp::detail::poll_until;

TEST_CASE("poll_until asks until the answer is yes, and not again", "[transport][poll]") {
    for (const int needed : {1, 2, 7}) {
        int asked = 0;
        poll_until([&] { return ++asked == needed; });
        CHECK(asked == needed);
    }
}

TEST_CASE("poll_until goes on asking through its sleeps", "[transport][poll]") {
    using clock = std::chrono::steady_clock;
    const clock::time_point start = clock::now();
    int asked = 0;
    poll_until([&] {
        ++asked;
        return clock::now() - start > std::chrono::milliseconds(1);
    });
    CHECK(asked > 1);
}

TEST_CASE("poll_until lets exceptions out", "[transport][poll]") {
    int asked = 0;
    const auto fails = [&]() -> bool {
        if (++asked == 3) throw std::runtime_error("lost");
        return false;
    };
    CHECK_THROWS_WITH(poll_until(fails), "lost");
}

TEST_CASE("poll_until gives up at the deadline, having asked at least once", "[transport][poll]") {
    using clock = std::chrono::steady_clock;
    int asked = 0;
    const auto no = [&] {
        ++asked;
        return false;
    };
    CHECK_FALSE(poll_until(no, clock::now() - std::chrono::seconds(1)));
    CHECK(asked == 1);
    const clock::time_point deadline = clock::now() + std::chrono::milliseconds(2);
    CHECK_FALSE(poll_until(no, deadline));
    CHECK(clock::now() >= deadline);
    CHECK(asked > 2);
    CHECK(poll_until([] { return true; }, clock::now() - std::chrono::seconds(1)));
}
