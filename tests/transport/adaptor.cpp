/// \file
/// What transports around others owe those inside.

#include <zeropp/transport/adaptor.hpp>

#include "support/catch.hpp"
#include "support/fault_injecting.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/checksummed.hpp>
#include <zeropp/transport/counting.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using zeropp::host;

/// Of one rank; notes what it hears.
struct watching {
    struct heard {
        std::vector<std::string> begun;
        int waits = 0;
    };

    heard* notes;

    static int rank() { return 0; }
    static int size() { return 1; }
    template <class E>
    void all_gather(const E&, const std::byte* send, std::byte* recv, std::size_t bytes) const {
        std::copy_n(send, bytes, recv);
    }
    template <class E>
    void all_to_all(const E&, const std::byte* send, std::byte* recv, std::size_t bytes) const {
        std::copy_n(send, bytes, recv);
    }
    template <class E>
    void broadcast(const E&, const std::byte* send, std::byte* recv, std::size_t bytes, int) const {
        std::copy_n(send, bytes, recv);
    }
    watching split(std::span<const int>) const { return *this; }
    void begin(const zeropp::collective_call& call, const std::string& problem) const {
        if (call.primitive != "checked") notes->begun.push_back(call.primitive.str() + problem);
    }
    template <class E>
    void wait(const E& exec) const {
        ++notes->waits;
        exec.wait();
    }
};

/// Passes on begin and wait, also from a split.
template <class Make>
void passes_on(const std::string& name, Make make) {
    INFO(name);
    watching::heard notes;
    auto outer = make(watching{&notes});
    zeropp::begin_collective(outer, {"first", 1, "fp32", "int8", {}}, "");
    zeropp::wait_for(outer, host());
    CHECK(notes.begun == std::vector<std::string>{"first"});
    CHECK(notes.waits == 1);
    const std::vector<int> everyone{0};
    auto split = outer.split(everyone);
    zeropp::begin_collective(split, {"second", 1, "fp32", "int8", {}}, "");
    zeropp::wait_for(split, host());
    CHECK(notes.begun == std::vector<std::string>{"first", "second"});
    CHECK(notes.waits == 2);
    const std::byte sent[] = {std::byte{1}, std::byte{2}};
    std::byte received[2] = {};
    split.all_gather(host(), sent, received, 2);
    CHECK(std::equal(sent, sent + 2, received));
    split.all_to_all(host(), sent + 1, received, 1);
    CHECK(received[0] == std::byte{2});
    CHECK(zeropp::can_broadcast<host>(split));
    split.broadcast(host(), sent, received, 1, 1);
    CHECK(received[0] == std::byte{1});
}

}  // namespace

TEST_CASE("transports around others pass on what those inside have to hear of", "[transport][adaptor]") {
    passes_on("checked", [](watching w) { return zeropp::checked<watching>(w); });
    passes_on("counting", [](watching w) { return zeropp::counting(w, zeropp::flat(1)); });
    passes_on("checksummed", [](watching w) { return zeropp::checksummed<watching>(w); });
    passes_on("any_transport", [](watching w) { return zeropp::any_transport<host, zeropp::host_queue>(w); });
    passes_on("any_transport, shared",
              [](watching w) { return zeropp::any_transport<host>(std::make_shared<watching>(w)); });
    passes_on("fault_injecting",
              [](watching w) { return zeropp_test::fault_injecting<watching>(w, zeropp_test::planned_fault{}); });
    passes_on("each around another", [](watching w) {
        return zeropp::checked(zeropp::checksummed(zeropp::counting(zeropp::any_transport<host>(w), zeropp::flat(1))));
    });
}
