#include <zeropp/execution/execution.hpp>

#include "support/catch.hpp"

namespace {

struct of_device {
    using space = zeropp::device_space;
    struct event {};
    void copy(void*, const void*, std::size_t) const {}
    event record() const { return {}; }
    void wait(const event&) const {}
    void wait() const {}
    template <class F>
    void enqueue(F&&) const {}
};

struct without_enqueue {
    using space = zeropp::host_space;
    struct event {};
    void copy(void*, const void*, std::size_t) const {}
    event record() const { return {}; }
    void wait(const event&) const {}
    void wait() const {}
};

struct without_events {
    using space = zeropp::host_space;
    void wait() const {}
    template <class F>
    void enqueue(F&&) const {}
};

struct records_something_else : without_enqueue {
    int record() const { return 0; }
};

}  // namespace

TEST_CASE("the execution concepts ask for events, and for host functions only in host memory", "[execution]") {
    STATIC_REQUIRE(zeropp::execution<of_device>);
    STATIC_REQUIRE_FALSE(zeropp::host_execution<of_device>);
    STATIC_REQUIRE(zeropp::execution<without_enqueue>);
    STATIC_REQUIRE_FALSE(zeropp::host_execution<without_enqueue>);
    STATIC_REQUIRE_FALSE(zeropp::execution<without_events>);
    STATIC_REQUIRE_FALSE(zeropp::execution<records_something_else>);
    STATIC_REQUIRE_FALSE(zeropp::execution<int>);
}
