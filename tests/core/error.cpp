#include <zeropp/core/error.hpp>

#include "support/catch.hpp"

#include <stdexcept>
#include <string>
#include <type_traits>

TEST_CASE("what errors say", "[core][error]") {
    CHECK(std::string(zeropp::error("all is lost").what()) == "all is lost");
    CHECK(std::string(zeropp::precondition_error("already worded").what()) == "already worded");
    CHECK(std::string(zeropp::precondition_error("flat", "at least 1 rank", "0").what()) ==
          "flat: expected at least 1 rank, given 0");
    CHECK(std::string(zeropp::precondition_error(std::string("a"), std::string("b"), std::string("c")).what()) ==
          "a: expected b, given c");
    CHECK(std::string(zeropp::peer_error("rank 3 has failed").what()) == "rank 3 has failed");
    const zeropp::integrity_error changed("a bit has flipped", 3, 5);
    CHECK(std::string(changed.what()) == "a bit has flipped");
    CHECK(changed.source() == 3);
    CHECK(changed.destination() == 5);
}

TEST_CASE("errors are caught by their base", "[core][error]") {
    static_assert(std::is_base_of_v<std::runtime_error, zeropp::error>);
    static_assert(std::is_base_of_v<zeropp::error, zeropp::precondition_error>);
    static_assert(std::is_base_of_v<zeropp::error, zeropp::peer_error>);
    static_assert(std::is_base_of_v<zeropp::error, zeropp::integrity_error>);
    static_assert(!std::is_base_of_v<zeropp::precondition_error, zeropp::peer_error>);
    CHECK_THROWS_AS([] { throw zeropp::precondition_error("a", "b", "c"); }(), zeropp::error);
    CHECK_THROWS_AS([] { throw zeropp::peer_error("a"); }(), std::runtime_error);
}
