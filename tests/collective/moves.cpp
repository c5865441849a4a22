/// \file
/// reduction_plan: chunks are whole blocks of every format, and share two sets of buffers.

#include "support/catch.hpp"

#include <zeropp/collective/moves.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/layout/schedule.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/topology/two_level.hpp>

#include <array>
#include <cstddef>
#include <vector>

namespace {
template <class Topology, class IntraNode, class InterNode>
auto plan(const Topology& ranks, const IntraNode&, const InterNode&, std::size_t elements, int chunks) {
    const zeropp::detail::tensor_division whole(elements, ranks.size());
    const std::array formats{zeropp::format_of<IntraNode>, zeropp::format_of<InterNode>};
    return zeropp::detail::reduction_plan(ranks, zeropp::detail::schedule(whole, chunks, formats));
}
constexpr zeropp::block_integer<8, 256> int8;
constexpr zeropp::block_integer<4, 128> int4;
}  // namespace

TEST_CASE("plan: as many chunks as wanted where there are blocks enough") {
    REQUIRE(plan(zeropp::two_level(2, 2), int8, int4, 4 * 256 * 12, 3).sizes.cut.size() == 3);
    REQUIRE(plan(zeropp::two_level(2, 2), int8, int4, 4 * 256 * 12, 12).sizes.cut.size() == 12);
    REQUIRE(plan(zeropp::two_level(2, 2), int8, int4, 4 * 256 * 12, 100).sizes.cut.size() == 12);
    REQUIRE(plan(zeropp::two_level(2, 2), int4, int8, 4 * 256 * 12, 100).sizes.cut.size() == 12);
}

TEST_CASE("plan: buffers of the two chunks in flight do not overlap and fill the workspace") {
    const auto p = plan(zeropp::two_level(3, 2), int8, int4, 6 * 1000, 3);
    // A chunk of 512 elements: 6 messages of 520 (padded 528) inside, 3 of 272 across, to send and to receive.
    REQUIRE(p.sizes.cut[0].count == 512);
    REQUIRE(p.sent == std::array<std::size_t, 2>{6 * 528, 3 * 272});
    REQUIRE(p.workspace_bytes() == 2 * 2 * (6 * 528 + 3 * 272));
    std::vector<std::byte> workspace(p.workspace_bytes());
    const auto offset = [&](const std::byte* b) { return b - workspace.data(); };
    for (const std::size_t c : {0u, 1u, 2u}) {
        const auto first = static_cast<std::ptrdiff_t>(c % 2 * 2 * (6 * 528 + 3 * 272));
        REQUIRE(offset(p.to_send(workspace.data(), c, 0)) == first);
        REQUIRE(offset(p.to_receive(workspace.data(), c, 0)) == first + 6 * 528);
        REQUIRE(offset(p.to_send(workspace.data(), c, 1)) == first + 2 * 6 * 528);
        REQUIRE(offset(p.to_receive(workspace.data(), c, 1)) == first + 2 * 6 * 528 + 3 * 272);
    }
}

TEST_CASE("plan: options in words tell options apart") {
    using zeropp::reduction;
    REQUIRE(zeropp::reduce_options{}.text(1).str() == "sum in 1 chunk");
    REQUIRE(zeropp::reduce_options{reduction::mean, 12, true}.text(12).str() == "mean in 12 chunks, accumulated");
    REQUIRE(zeropp::reduce_options{reduction::sum, -3, false}.text(-3).str() == "sum in 0 chunks");
}
