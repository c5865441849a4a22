#include <zeropp/core/text.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

using zeropp::short_text;

TEST_CASE("short text holds what it is given", "[core][text]") {
    CHECK(short_text().str().empty());
    CHECK(short_text("int8").str() == "int8");
    CHECK(short_text(std::string_view("int8:256").substr(0, 4)).str() == "int8");
    short_text text("int");
    text.append(4).append(":").append(128).append(std::string_view(":x"));
    CHECK(text.str() == "int4:128:x");
    CHECK(std::string_view(text) == "int4:128:x");
    static_assert(std::is_trivially_copyable_v<short_text>);
    static_assert(std::string_view(short_text("a").append(10)) == "a10");
}

TEST_CASE("short text writes integers", "[core][text]") {
    for (const int n : {0, 1, 9, 10, 99, 100, 1000000007, std::numeric_limits<int>::max()}) {
        CHECK(short_text().append(n).str() == std::to_string(n));
    }
    for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
        CHECK(short_text().append(n).str() == std::to_string(n));
    }
}

TEST_CASE("short text is cut at its capacity", "[core][text]") {
    const std::string full(short_text::capacity, 'x');
    CHECK(short_text(full).str() == full);
    CHECK(short_text(full + "y").str() == full);
    CHECK(short_text(full).append("more").append(5).str() == full);
    CHECK(short_text(full.substr(1)).append("yz").str() == full.substr(1) + "y");
    CHECK(short_text(full.substr(1)).append(78).str() == full.substr(1) + "7");
    CHECK(short_text(std::string(100000, 'x')).str() == full);
}

TEST_CASE("short text compares by what it says", "[core][text]") {
    CHECK(short_text("fp32") == short_text("fp32"));
    CHECK_FALSE(short_text("fp32") == short_text("fp3"));
    CHECK_FALSE(short_text("fp32") == short_text("fp16"));
    CHECK(short_text() == short_text(""));
    CHECK(short_text(std::string_view("a\0b", 3)).str().size() == 3);
    CHECK_FALSE(short_text(std::string_view("a\0b", 3)) == short_text("a"));
}

TEST_CASE("texts that are cut are equal only if they were before", "[core][text]") {
    using text = zeropp::text_in_place<4>;
    CHECK(text("abcdef") == text("abcdef"));
    CHECK(std::string_view(text("abcdef")) == "abcd");
    CHECK_FALSE(text("abcdef") == text("abcdeg"));
    CHECK_FALSE(text("abcdef") == text("abcd"));
    CHECK(text("ab").append("cdef") == text("abcdef"));
    // What a text has lost, one made of it has lost too.
    using longer = zeropp::text_in_place<9>;
    CHECK(longer(text("abcd")) == longer("abcd"));
    CHECK_FALSE(longer(text("abcdef")) == longer(text("abcdeg")));
    CHECK_FALSE(longer("x").append(text("abcdef")) == longer("x").append(text("abcdeg")));
}

TEST_CASE("a text of any bytes ends with its array", "[core][text]") {
    zeropp::short_text text;
    std::memset(static_cast<void*>(&text), 0xff, sizeof text);
    CHECK(std::string_view(text).size() == zeropp::short_text::capacity);
}
