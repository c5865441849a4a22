#include <zeropp/transport/transport.hpp>

#include "conformance/decorators.hpp"
#include "conformance/error_laws.hpp"
#include "conformance/transport_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/on_threads.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>
#include <zeropp/transport/threads.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
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

/// A user's own, which has the operations that every transport has.
struct plain_operations {
    zeropp::thread_transport inner;
    int rank() const { return inner.rank(); }
    int size() const { return inner.size(); }
    template <zeropp::host_execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        inner.all_gather(exec, send, recv, bytes);
    }
    template <zeropp::host_execution E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        inner.all_to_all(exec, send, recv, bytes);
    }
    plain_operations split(std::span<const int> members) { return {inner.split(members)}; }
};

struct without_broadcast {
    template <class T>
    static auto wrap(T inner) {
        return plain_operations{std::move(inner)};
    }
};

struct immovable : zeropp::thread_transport {
    immovable(immovable&&) = delete;
};

}  // namespace

template <>
inline constexpr bool zeropp_test::does_without_broadcast<plain_operations> = true;

TEST_CASE("transports and their decorators obey the laws of transports", "[transport]") {
    const auto laws = []<class Decorator>(Decorator, int ranks, const char* name) {
        on_threads(ranks, std::string("the laws of transports for ") + name,
                   [](zeropp::thread_transport& base, expectations& expect) {
                       auto world = Decorator::wrap(base);
                       transport_laws(world, expect);
                   });
    };
    for (const int ranks : {1, 2, 3, 4, 6}) laws(plain(), ranks, "thread_transport");
    for (const int ranks : {1, 2, 3, 4}) {
        laws(chosen(), ranks, "any_transport");
        laws(without_broadcast(), ranks, "a transport without broadcast");
    }
    for (const int ranks : {1, 2, 4}) {
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

TEST_CASE("transports say whether they can broadcast, and those around others what those can", "[transport]") {
    using zeropp::broadcasting_transport_on;
    using zeropp::host;
    STATIC_REQUIRE(broadcasting_transport_on<zeropp::thread_transport, host>);
    STATIC_REQUIRE(broadcasting_transport_on<zeropp::counting<zeropp::thread_transport, zeropp::flat>, host>);
    STATIC_REQUIRE(broadcasting_transport_on<zeropp::checked<zeropp::thread_transport>, zeropp::host_queue>);
    STATIC_REQUIRE(zeropp::transport_on<plain_operations, host>);
    STATIC_REQUIRE_FALSE(broadcasting_transport_on<plain_operations, host>);
    zeropp::thread_transport threads = zeropp::thread_transport::create(1)[0];
    zeropp::any_transport<host> with(threads);
    zeropp::any_transport<host> without(plain_operations{threads});
    CHECK(zeropp::can_broadcast<host>(with));
    CHECK_FALSE(zeropp::can_broadcast<host>(without));
    CHECK_FALSE(zeropp::can_broadcast<host>(zeropp::counting(plain_operations{threads}, zeropp::flat(1))));
    CHECK(zeropp::can_broadcast<host>(zeropp::counting(with, zeropp::flat(1))));
    CHECK_FALSE(zeropp::can_broadcast<host>(zeropp::counting(without, zeropp::flat(1))));
    CHECK_FALSE(zeropp::can_broadcast<host>(zeropp::any_transport<host>(zeropp::counting(without, zeropp::flat(1)))));
    std::byte a{};
    CHECK(thrown<zeropp::precondition_error>([&] { without.broadcast(host(), &a, &a, 1, 1); }) ==
          "broadcast: expected a transport that can broadcast, given one that cannot");
    for (const int roots : {0, 2}) {
        CHECK(thrown<zeropp::precondition_error>([&] { threads.broadcast(host(), &a, &a, 1, roots); }) ==
              "broadcast: expected 1 to 1 ranks that send, given " + std::to_string(roots));
    }
}

TEST_CASE("begin_collective throws a rank's own problem where nobody watches", "[transport]") {
    unwatched transport;
    const auto begin = [&](const std::string& problem) {
        return thrown<zeropp::precondition_error>([&] { zeropp::begin_collective(transport, a_call(), problem); });
    };
    CHECK(begin("") == "<nothing thrown>");
    CHECK(begin("expected this, given that") == "gather: expected this, given that");
}

TEST_CASE("begin_collective tells calls and problems to transports that watch, and throws the problems",
          "[transport]") {
    noting transport;
    zeropp::begin_collective(transport, a_call(), "");
    CHECK(thrown<zeropp::precondition_error>([&] { zeropp::begin_collective(transport, a_call(), "a problem"); }) ==
          "gather: a problem");
    CHECK(transport.notes == std::vector<std::string>{"gather/", "gather/a problem"});
}
