#include <zeropp/execution/host.hpp>

#include "conformance/execution_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <stdexcept>
#include <thread>

TEST_CASE("host obeys the laws of host executions", "[execution][host]") {
    zeropp_test::execution_laws<zeropp::host>();
}

TEST_CASE("host runs work before enqueue returns, on the calling thread", "[execution][host]") {
    const zeropp::host exec;
    std::thread::id ran_on;
    exec.enqueue([&] { ran_on = std::this_thread::get_id(); });
    CHECK(ran_on == std::this_thread::get_id());
}

TEST_CASE("host throws out of enqueue and skips nothing afterwards", "[execution][host]") {
    const zeropp::host exec;
    const auto fails = [&] { exec.enqueue([] { throw std::runtime_error("at once"); }); };
    CHECK(zeropp_test::thrown<std::runtime_error>(fails) == "at once");
    bool ran = false;
    exec.enqueue([&] { ran = true; });
    CHECK(ran);
}
