#pragma once
/// \file
/// A transport that records calls, and a law: decorators forward begin and wait.

#include "support/catch.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace zeropp_test {

/// A transport of one rank that records `begin` and `wait`.
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

/// make(transport) forwards begin and wait, also from a split.
template <class Make>
void passes_on(const std::string& name, Make make) {
    INFO(name);
    watching::heard notes;
    auto outer = make(watching{&notes});
    zeropp::begin_collective(outer, {"first", 1, "fp32", "int8", {}}, "");
    zeropp::wait_for(outer, zeropp::host());
    CHECK(notes.begun == std::vector<std::string>{"first"});
    CHECK(notes.waits == 1);
    const std::vector<int> everyone{0};
    auto split = outer.split(everyone);
    zeropp::begin_collective(split, {"second", 1, "fp32", "int8", {}}, "");
    zeropp::wait_for(split, zeropp::host());
    CHECK(notes.begun == std::vector<std::string>{"first", "second"});
    CHECK(notes.waits == 2);
    const std::byte sent[] = {std::byte{1}, std::byte{2}};
    std::byte received[2] = {};
    split.all_gather(zeropp::host(), sent, received, 2);
    CHECK(std::equal(sent, sent + 2, received));
    split.all_to_all(zeropp::host(), sent + 1, received, 1);
    CHECK(received[0] == std::byte{2});
    CHECK(zeropp::can_broadcast<zeropp::host>(split));
    split.broadcast(zeropp::host(), sent, received, 1, 1);
    CHECK(received[0] == std::byte{1});
}

}  // namespace zeropp_test
