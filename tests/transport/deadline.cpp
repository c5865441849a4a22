#include <zeropp/transport/deadline.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using zeropp::detail::deadline_after;
using zeropp::detail::no_deadline;
using zeropp::detail::poll_until;

TEST_CASE("a deadline is a timeout from now, and none where there is no timeout", "[transport][deadline]") {
    const auto before = std::chrono::steady_clock::now();
    const auto deadline = deadline_after(50ms);
    CHECK(deadline >= before + 50ms);
    CHECK(deadline <= std::chrono::steady_clock::now() + 50ms);
    CHECK(deadline_after(0ms) == no_deadline);
    CHECK(deadline_after(std::chrono::milliseconds::max()) == no_deadline);
}

TEST_CASE("a timeout says who waited how long, in which operation, and for whom", "[transport][deadline]") {
    using zeropp::detail::not_heard_from;
    const std::string text =
        zeropp::detail::timed_out("somewhere", 20ms, "call 1, split", not_heard_from(std::vector<int>{1, 5})).what();
    CHECK(text == "somewhere: timeout of 20 ms in call 1, split: not heard from ranks 1, 5");
    CHECK(not_heard_from(std::vector<int>{3}) == "not heard from rank 3");
}

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
