#include <zeropp/transport/transport.hpp>

#include "conformance/transport_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/on_threads.hpp"

#include <string>
#include <vector>

namespace {

using namespace zeropp_test;

/// A transport that watches nothing.
struct unwatched {};

/// A transport that notes what it is told.
struct noting {
    std::vector<std::string> notes;
    void begin(const zeropp::collective_call& call, const std::string& problem) {
        notes.push_back(call.primitive.str() + "/" + problem);
    }
};

struct immovable : zeropp::thread_transport {
    immovable(immovable&&) = delete;
};

}  // namespace

TEST_CASE("transports and their decorators obey the laws of transports", "[transport]") {
    const auto laws = []<class Decorator>(Decorator, int ranks, const char* name) {
        on_threads(ranks, std::string("the laws of transports for ") + name,
                   [](zeropp::thread_transport& base, expectations& expect) {
                       auto world = Decorator::wrap(base);
                       transport_laws(world, expect);
                   });
    };
    for (const int ranks : {1, 2, 3, 4, 6}) laws(plain(), ranks, "thread_transport");
    for (const int ranks : {1, 2, 4}) {
        laws(counted(), ranks, "counting");
        laws(checking(), ranks, "checked");
        laws(both<checking, counted>(), ranks, "checked<counting>");
        laws(both<counted, checking>(), ranks, "counting<checked>");
    }
}

TEST_CASE("the transport concept asks for operations on the execution, and for moves", "[transport]") {
    STATIC_REQUIRE(zeropp::transport_on<zeropp::thread_transport, zeropp::host>);
    STATIC_REQUIRE_FALSE(zeropp::transport_on<immovable, zeropp::host>);
    STATIC_REQUIRE_FALSE(zeropp::transport_on<unwatched, zeropp::host>);
    STATIC_REQUIRE_FALSE(zeropp::transport_on<zeropp::thread_transport, int>);
}

TEST_CASE("begin_collective throws a rank's own problem where nobody watches", "[transport]") {
    unwatched transport;
    const auto begin = [&](const std::string& problem) {
        return thrown<zeropp::precondition_error>([&] { zeropp::begin_collective(transport, a_call(), problem); });
    };
    CHECK(begin("") == "<nothing thrown>");
    CHECK(begin("expected this, given that") == "gather: expected this, given that");
}

TEST_CASE("begin_collective leaves calls and problems to transports that watch", "[transport]") {
    noting transport;
    zeropp::begin_collective(transport, a_call(), "");
    zeropp::begin_collective(transport, a_call(), "a problem");
    CHECK(transport.notes == std::vector<std::string>{"gather/", "gather/a problem"});
}
