#include <zeropp/core/workspace.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace {

using zeropp::device_space;
using zeropp::host_space;
using zeropp::host_view;
using zeropp::workspace;

}  // namespace

TEST_CASE("a host workspace is zero, aligned and of its size", "[core][workspace]") {
    for (const std::size_t bytes : {0u, 1u, 15u, 16u, 17u, 4096u, 1000003u}) {
        CAPTURE(bytes);
        workspace<host_space> scratch(bytes);
        const auto memory = scratch.view();
        CHECK(memory.size() == bytes);
        CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % zeropp::workspace_alignment == 0);
        CHECK(std::all_of(memory.data(), memory.data() + memory.size(), [](std::byte b) { return b == std::byte{0}; }));
        CHECK(zeropp::workspace_problem(memory, bytes).empty());
        CHECK_FALSE(zeropp::workspace_problem(memory, bytes + 1).empty());
    }
}

TEST_CASE("workspace_problem says what is wrong", "[core][workspace]") {
    alignas(16) std::byte memory[64];
    const host_view<std::byte> whole(memory, 64);
    CHECK(zeropp::workspace_problem(whole, 64).empty());
    CHECK(zeropp::workspace_problem(whole, 0).empty());
    CHECK(zeropp::workspace_problem(whole, 65) == "expected a workspace of at least 65 bytes, given 64");
    CHECK(zeropp::workspace_problem(whole.subview(16, 48), 48).empty());
    CHECK(zeropp::workspace_problem(whole.subview(1, 63), 16) ==
          "expected a workspace aligned to 16 bytes, given one that starts 1 bytes past a boundary");
    CHECK(zeropp::workspace_problem(whole.subview(15, 40), 40) ==
          "expected a workspace aligned to 16 bytes, given one that starts 15 bytes past a boundary");
    CHECK(zeropp::workspace_problem(host_view<std::byte>(), 0).empty());
    CHECK(zeropp::workspace_problem(host_view<std::byte>(), 1) == "expected a workspace of at least 1 bytes, given 0");
    CHECK(zeropp::workspace_problem(zeropp::device_view<std::byte>(memory, 10), 11) ==
          "expected a workspace of at least 11 bytes, given 10");
}
