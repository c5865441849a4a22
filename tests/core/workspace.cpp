#include <zeropp/core/workspace.hpp>

#include "support/catch.hpp"
#include "support/counting_resource.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <utility>

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

TEST_CASE("a host workspace takes its memory from the caller's resource, and gives it back there",
          "[core][workspace]") {
    zeropp_test::counting_resource resource;
    {
        workspace<host_space> scratch(100, &resource);
        const workspace<host_space> none(0, &resource);
        CHECK(resource.allocations() == 1);
        CHECK(none.view().size() == 0);
        const auto memory = scratch.view();
        CHECK(std::all_of(memory.data(), memory.data() + memory.size(), [](std::byte b) { return b == std::byte{0}; }));
        workspace<host_space> taken(0);
        taken = std::move(scratch);
        CHECK(taken.view().data() == memory.data());
        CHECK(taken.view().size() == 100);
        CHECK(scratch.view().size() == 0);
        CHECK(resource.live() == 1);
    }
    CHECK(resource.live() == 0);
    CHECK(resource.mistakes() == 0);
    STATIC_REQUIRE(zeropp::allocates_in<std::pmr::memory_resource*, host_space>);
    STATIC_REQUIRE(zeropp::allocates_in<zeropp_test::counting_resource*, host_space>);
    STATIC_REQUIRE_FALSE(zeropp::allocates_in<std::pmr::memory_resource*, device_space>);
    STATIC_REQUIRE_FALSE(zeropp::allocates_in<std::byte*, host_space>);
    STATIC_REQUIRE_FALSE(zeropp::allocates_in<std::nullptr_t, host_space>);
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
