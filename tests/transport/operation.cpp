#include <zeropp/transport/operation.hpp>

#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/transport/failure.hpp>
#include <zeropp/transport/transport.hpp>

#include <exception>
#include <stdexcept>
#include <vector>

using zeropp::operation;
using zeropp::detail::call_log;
using zeropp::detail::first_failure;
using zeropp_test::thrown;

TEST_CASE("an operation is named with the call that it is part of", "[transport][operation]") {
    call_log world;
    CHECK(world.next({operation::all_gather, 16}).text() == "call 1, all_gather of 16 bytes");
    CHECK(world.next({operation::split}).text() == "call 2, split");
    CHECK(world.next({operation::registration, 64}).text() == "call 3, registration of 64 bytes");
    call_log part = world.split();
    CHECK(part.next({operation::all_to_all, 7}).text() == "call 1, all_to_all of 7 bytes");
    world.begin("first");
    world.begin("second");
    CHECK(world.next({operation::all_gather, 16}).text() == "call 2, all_gather of 16 bytes in second");
    CHECK(world.next({operation::all_gather, 8}).text() == "call 2, all_gather of 8 bytes in second");
    CHECK(world.next({operation::split}).text() == "call 6, split");
    CHECK(world.next({operation::broadcast, 8, 1}).text() == "call 2, broadcast of 8 bytes from 1 rank in second");
    CHECK(world.next({operation::broadcast, 8, 3}).text() == "call 2, broadcast of 8 bytes from 3 ranks in second");
}

// Whoever takes part in an operation of a split has taken part in all that its name and number count.
TEST_CASE("a split's operations are of the collective that began last on it or above it", "[transport][operation]") {
    call_log world;
    call_log group = world.split();
    call_log inter_node = world.split();
    call_log nested = group.split();
    const auto name = [](call_log& log) { return log.next({operation::all_gather, 1}).text(); };
    world.begin("a");
    CHECK(name(group) == "call 1, all_gather of 1 bytes in a");
    group.begin("b");
    CHECK(name(group) == "call 1, all_gather of 1 bytes in b");
    CHECK(name(nested) == "call 1, all_gather of 1 bytes in b");
    CHECK(name(world) == "call 1, all_gather of 1 bytes in a");
    CHECK(name(inter_node) == "call 1, all_gather of 1 bytes in a");
    call_log copy = world;
    copy.begin("c");
    for (call_log* log : {&world, &group, &inter_node, &nested})
        CHECK(name(*log) == "call 2, all_gather of 1 bytes in c");
    nested.begin("d");
    CHECK(name(nested) == "call 1, all_gather of 1 bytes in d");
    CHECK(name(group) == "call 2, all_gather of 1 bytes in c");
}

TEST_CASE("ranks of splits have numbers in the world", "[transport][operation]") {
    const std::vector<int> world = zeropp::detail::world_ranks(6);
    const std::vector<int> part = zeropp::detail::world_ranks(world, std::vector<int>{5, 3, 1});
    CHECK(part == std::vector<int>{5, 3, 1});
    const std::vector<int> nested = zeropp::detail::world_ranks(part, std::vector<int>{2, 0});
    CHECK(nested == std::vector<int>{1, 5});
}

TEST_CASE("the first failure is the one that stays", "[transport][operation]") {
    first_failure failure;
    CHECK_FALSE(failure.any());
    CHECK_NOTHROW(failure.rethrow());
    failure.set(std::make_exception_ptr(std::runtime_error("first")));
    failure.set(std::make_exception_ptr(std::logic_error("second")));
    CHECK(failure.any());
    for (int i = 0; i != 2; ++i) CHECK(thrown<std::runtime_error>([&] { failure.rethrow(); }) == "first");
}
