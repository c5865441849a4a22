#include <zeropp/core/view.hpp>

#include "support/catch.hpp"

#include <array>
#include <concepts>
#include <deque>
#include <list>
#include <span>
#include <vector>

namespace {

using zeropp::array_in;
using zeropp::device_space;
using zeropp::device_view;
using zeropp::host_space;
using zeropp::host_view;
using zeropp::mutable_array_in;

using floats = std::vector<float>;

static_assert(array_in<floats, host_space> && array_in<floats&, host_space> && array_in<const floats&, host_space>);
static_assert(array_in<std::array<float, 3>&, host_space> && array_in<std::span<const float>, host_space>);
static_assert(array_in<float (&)[3], host_space>);
static_assert(array_in<host_view<float>, host_space> && array_in<const host_view<const float>&, host_space>);
static_assert(array_in<device_view<float>, device_space> && array_in<const device_view<float>&, device_space>);

static_assert(!array_in<floats&, device_space> && !array_in<std::span<float>, device_space>);
static_assert(!array_in<host_view<float>, device_space> && !array_in<device_view<float>, host_space>);
static_assert(!array_in<std::list<float>&, host_space> && !array_in<std::deque<float>&, host_space>);
static_assert(!array_in<std::vector<bool>&, host_space> && !array_in<float*, host_space> &&
              !array_in<float, host_space>);

static_assert(mutable_array_in<floats&, host_space> && !mutable_array_in<const floats&, host_space>);
static_assert(mutable_array_in<std::span<float>, host_space> && !mutable_array_in<std::span<const float>, host_space>);
static_assert(mutable_array_in<const std::span<float>&, host_space>);
static_assert(mutable_array_in<const host_view<float>&, host_space>);
static_assert(!mutable_array_in<host_view<const float>&, host_space>);
static_assert(mutable_array_in<device_view<float>, device_space> && !mutable_array_in<device_view<float>, host_space>);

static_assert(std::convertible_to<host_view<float>, host_view<const float>>);
static_assert(!std::convertible_to<host_view<const float>, host_view<float>>);
static_assert(!std::convertible_to<host_view<float>, device_view<float>>);
static_assert(!std::convertible_to<device_view<float>, host_view<const float>>);
static_assert(!std::convertible_to<host_view<int>, host_view<const float>>);

}  // namespace

TEST_CASE("as_view refers to the array's own memory", "[core][view]") {
    floats values{1, 2, 3, 4, 5};
    const auto whole = zeropp::as_view<host_space>(values);
    static_assert(std::same_as<decltype(whole), const host_view<float>>);
    CHECK(whole.data() == values.data());
    CHECK(whole.size() == 5);
    CHECK(whole.size_bytes() == 20);

    const auto constant = zeropp::as_view<host_space>(std::as_const(values));
    static_assert(std::same_as<decltype(constant), const host_view<const float>>);
    CHECK(constant.data() == values.data());

    double plain[3] = {};
    CHECK(zeropp::as_view<host_space>(plain).data() == plain);
    CHECK(zeropp::as_view<host_space>(plain).size_bytes() == 24);

    const auto again = zeropp::as_view<host_space>(whole);
    CHECK(again.data() == values.data());
    CHECK(again.size() == 5);

    CHECK(zeropp::as_view<host_space>(std::span<float>(values).subspan(2)).data() == values.data() + 2);
}

TEST_CASE("a device view passes through untouched", "[core][view]") {
    int number = 0;
    const device_view<int> device(&number, 7);
    const auto seen = zeropp::as_view<device_space>(device);
    static_assert(std::same_as<decltype(seen), const device_view<int>>);
    CHECK(seen.data() == &number);
    CHECK(seen.size() == 7);
}

TEST_CASE("subviews and empty views", "[core][view]") {
    floats values{1, 2, 3, 4, 5};
    const host_view<float> whole(values.data(), values.size());
    const auto middle = whole.subview(1, 3);
    CHECK(middle.data() == values.data() + 1);
    CHECK(middle.size() == 3);
    CHECK(whole.subview(5, 0).size() == 0);
    CHECK(whole.subview(0, 5).size() == 5);

    const host_view<const float> constant = middle;
    CHECK(constant.data() == middle.data());
    CHECK(constant.size() == 3);

    constexpr host_view<float> none;
    static_assert(none.data() == nullptr && none.size() == 0 && none.size_bytes() == 0);
    CHECK(zeropp::as_view<host_space>(floats{}).size() == 0);
}

TEST_CASE("arrays overlap where they share an element", "[core][view]") {
    floats values{1, 2, 3, 4, 5};
    const host_view<float> whole(values.data(), values.size());
    using zeropp::detail::overlap;
    CHECK(overlap(whole, whole));
    CHECK(overlap(whole, whole.subview(4, 1)));
    CHECK(overlap(whole.subview(4, 1), whole));
    CHECK(overlap(whole.subview(0, 3), whole.subview(2, 3)));
    CHECK_FALSE(overlap(whole.subview(0, 2), whole.subview(2, 3)));
    CHECK_FALSE(overlap(whole.subview(2, 3), whole.subview(0, 2)));
    CHECK_FALSE(overlap(whole, whole.subview(2, 0)));
    CHECK_FALSE(overlap(whole, host_view<const double>()));
}
