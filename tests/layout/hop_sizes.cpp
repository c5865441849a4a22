#include <zeropp/layout/schedule.hpp>

#include <zeropp/layout/divided.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/three_level.hpp>
#include <zeropp/topology/two_level.hpp>

#include "support/catch.hpp"

#include <array>
#include <cstddef>

using zeropp::auto_chunks;
using zeropp::flat;
using zeropp::three_level;
using zeropp::two_level;
using zeropp::detail::chunks_for;

TEST_CASE("chunks are automatic where hops overlap, and there is one to overlap with", "[topology][hop_sizes]") {
    const std::size_t large = 8192 * 1024;
    CHECK(chunks_for(auto_chunks, two_level(2, 3), large, true) == 16);
    CHECK(chunks_for(auto_chunks, two_level(2, 3), large, false) == 1);
    CHECK(chunks_for(auto_chunks, flat(6), large, true) == 1);
    CHECK(chunks_for(5, flat(6), large, false) == 5);
    CHECK(chunks_for(5, two_level(2, 3), 0, true) == 5);
}

namespace {
/// A format in which every message has `Bytes` bytes.
template <std::size_t Bytes>
constexpr zeropp::message_format fixed{1, [](std::size_t, const zeropp::message_place&) { return Bytes; }};
constexpr auto int8 = zeropp::format_of<zeropp::block_integer<8, 256>>;
constexpr auto int4 = zeropp::format_of<zeropp::block_integer<4, 128>>;
/// Plan of a reduction of `elements` elements in `chunks` chunks, with messages in `formats` along the levels.
template <class Topology, class... Formats>
auto plan_of(const Topology& ranks, std::size_t elements, int chunks, const Formats&... formats) {
    const zeropp::detail::tensor_division whole(elements, ranks.size());
    return zeropp::detail::reduction_plan(ranks, zeropp::detail::schedule(whole, chunks, std::array{formats...}));
}
/// Plan of a reduction in `chunks` chunks, with messages of `Bytes` bytes along each level.
template <std::size_t... Bytes, class Topology>
auto plan(const Topology& ranks, int chunks = 1) {
    return plan_of(ranks, static_cast<std::size_t>(chunks * ranks.size()), chunks, fixed<Bytes>...);
}
}  // namespace

TEST_CASE("an update keeps a message of each slot that a rank serves, and of each rank if it gathers",
          "[topology][hop_sizes]") {
    const auto bytes = [](const auto& ranks, bool gathers) {
        const std::array formats{zeropp::format_of<zeropp::cast_to<float>>,
                                 zeropp::format_of<zeropp::cast_to<zeropp::bfloat16>>};
        const zeropp::detail::tensor_division whole(static_cast<std::size_t>(40 * ranks.size()), ranks.size());
        const zeropp::detail::schedule sizes(whole, 1, formats);
        CHECK(sizes.total(0) == 160);
        CHECK(sizes.total(1) == 80);
        return zeropp::detail::update_buffers(ranks, sizes, gathers).bytes;
    };
    CHECK(bytes(two_level(2, 3), false) == 2 * 160);
    CHECK(bytes(two_level(2, 3), true) == 2 * 160 + 6 * 80);
    // Three columns of two slots; the single rank of a node serves them all.
    CHECK(bytes(two_level::of_nodes({3, 1}), true) == 3 * 2 * 160 + 6 * 80);
    CHECK(bytes(two_level::of_nodes({3, 2}), false) == 2 * 2 * 160);
}

TEST_CASE("a reduction has buffers for the hops that it takes, of two chunks at most", "[topology][hop_sizes]") {
    const auto three = plan<100, 10>(two_level(2, 3), 3);
    CHECK(three.sent == std::array<std::size_t, 2>{600, 20});
    // Chunks take two sets of buffers in turn, to send and to receive along each level.
    std::byte workspace[4 * 620];
    for (const std::size_t c : {0u, 1u, 2u}) {
        std::byte* const first = workspace + c % 2 * 2 * 620;
        CHECK(three.to_send(workspace, c, 0) == first);
        CHECK(three.to_receive(workspace, c, 0) == first + 600);
        CHECK(three.to_send(workspace, c, 1) == first + 2 * 600);
        CHECK(three.to_receive(workspace, c, 1) == first + 2 * 600 + 20);
    }
    CHECK(plan<100, 10>(two_level(2, 3), 0).workspace_bytes() == 0);
    CHECK(plan<100, 10>(two_level(2, 3)).workspace_bytes() == 2 * 620);
    CHECK(plan<100, 10>(two_level(2, 3), 2).workspace_bytes() == 4 * 620);
    CHECK(plan<100, 10>(two_level(2, 3), 16).workspace_bytes() == 4 * 620);
    // Chunks of 512 and 488 elements: messages of 520 bytes, padded to 528, and of 272.
    CHECK(plan_of(two_level(3, 2), 6 * 1000, 3, int8, int4).sent == std::array<std::size_t, 2>{6 * 528, 3 * 272});
    // One node, nodes of one, and one rank, which sends to itself.
    CHECK(plan<100>(flat(6)).workspace_bytes() == 2 * 600);
    CHECK(plan<100, 10>(two_level(6, 1)).workspace_bytes() == 2 * 60);
    CHECK(plan<100>(flat(1)).workspace_bytes() == 2 * 100);
    // A slot without a rank has a message; a rank that serves two columns keeps both to send.
    CHECK(plan<100, 10>(two_level::of_nodes({3, 2})).workspace_bytes() == 2 * (600 + 2 * 20));
    CHECK(plan<100, 10>(two_level::of_nodes({2, 1, 1})).workspace_bytes() == 2 * (600 + 2 * 30));
    // Of three levels, each sends what the ones before it have summed. Levels of one member send nothing.
    CHECK(plan<1000, 100, 10>(three_level(3, 4, 5)).workspace_bytes() == 2 * (60 * 1000 + 12 * 100 + 3 * 10));
    CHECK(plan<1000, 100, 10>(three_level(3, 1, 5)).workspace_bytes() == 2 * (15 * 1000 + 3 * 10));
    CHECK(plan<1000, 100, 10>(three_level(1, 4, 1)).workspace_bytes() == 2 * 4 * 100);
}

TEST_CASE("a reduction has as many chunks as wanted if there are enough blocks of all formats",
          "[topology][hop_sizes]") {
    const auto chunks = [](const auto& first, const auto& second, int wanted) {
        return plan_of(two_level(2, 2), 4 * 256 * 12, wanted, first, second).sizes.cut.size();
    };
    CHECK(chunks(int8, int4, 3) == 3);
    CHECK(chunks(int8, int4, 12) == 12);
    CHECK(chunks(int8, int4, 100) == 12);
    CHECK(chunks(int4, int8, 100) == 12);
}
