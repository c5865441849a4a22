/// \file
/// The bytes that the collectives send, inside nodes and across, against figures worked out by hand.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/transport/counting.hpp>

using namespace collective_test;
using zeropp::host;

namespace {

constexpr zeropp::block_integer<8, 256> int8;
constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;

struct bytes {
    std::uint64_t intra_node;
    std::uint64_t inter_node;
};

/// What each rank sends in one call(comm) on `told`, when its nodes are `truly`.
template <class Call>
void check_traffic(const zeropp::two_level& told, const zeropp::two_level& truly, const std::string& name,
                   bytes expected, Call call) {
    std::vector<zeropp::traffic> entries(at(truly.size()));
    std::vector<std::size_t> count(entries.size());
    on_ranks(truly.size(), name, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(told, zeropp::counting(transport, truly));
        call(comm);
        count[at(comm.rank())] = comm.world().by_primitive().size();
        entries[at(comm.rank())] = comm.world().by_primitive().back();
    });
    for (std::size_t r = 0; r != entries.size(); ++r) {
        INFO(name << " on " << told.groups() << " x " << told.group_size(0) << ", rank " << r);
        REQUIRE(count[r] == 1);
        REQUIRE(entries[r].primitive.str() == name);
        REQUIRE(entries[r].calls == 1);
        REQUIRE(entries[r].intra_node_bytes == expected.intra_node);
        REQUIRE(entries[r].inter_node_bytes == expected.inter_node);
    }
}

}  // namespace

TEST_CASE("traffic of the all-gather: each message crosses once to each other node") {
    const auto gather = [](auto& comm) {
        std::vector<float> full(250 * at(comm.size()));
        zeropp::quantized_all_gather(host{}, comm, int8, std::vector<float>(250), full);
    };
    // 250 elements: 250 bytes of codes, 2 to align, a scale of 4.
    const std::uint64_t message = 256;
    const std::string name = "quantized_all_gather";
    const zeropp::two_level two_by_two(2, 2), three_by_two(3, 2);
    // Across: its own message to its counterpart. Inside: the two messages of its index.
    check_traffic(two_by_two, two_by_two, name, {2 * message, message}, gather);
    check_traffic(three_by_two, three_by_two, name, {3 * message, 2 * message}, gather);
    check_traffic({2, 3}, {2, 3}, name, {2 * 2 * message, message}, gather);
    check_traffic({1, 4}, {1, 4}, name, {3 * message, 0}, gather);
    check_traffic({4, 1}, {4, 1}, name, {0, 3 * message}, gather);
    check_traffic({1, 1}, {1, 1}, name, {0, 0}, gather);
    // Told nothing of the nodes, a message crosses to each of their ranks.
    check_traffic({1, 4}, two_by_two, name, {message, 2 * message}, gather);
}

TEST_CASE("traffic of the reduce-scatter: a rank's own slices cross, quantized for that hop") {
    const std::string name = "hierarchical_quantized_reduce_scatter";
    const auto reduce = [](auto& comm) {
        std::vector<float> shard(250);
        const std::vector<float> full(250 * at(comm.size()));
        zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{int8, int4}, full, shard);
    };
    // A slice is 256 bytes inside (see above); across, 125 bytes of codes, 1 to align, 2 scales of 2, 14 to fill.
    const std::uint64_t intra_node = 256, inter_node = 144;
    check_traffic({2, 2}, {2, 2}, name, {2 * intra_node, inter_node}, reduce);
    check_traffic({3, 2}, {3, 2}, name, {3 * intra_node, 2 * inter_node}, reduce);
    check_traffic({2, 3}, {2, 3}, name, {2 * 2 * intra_node, inter_node}, reduce);
    check_traffic({1, 4}, {1, 4}, name, {3 * intra_node, 0}, reduce);
    check_traffic({4, 1}, {4, 1}, name, {0, 3 * inter_node}, reduce);
    check_traffic({1, 1}, {1, 1}, name, {0, 0}, reduce);

    const auto in_chunks = [](auto& comm) {
        std::vector<float> shard(1000);
        const std::vector<float> full(4000);
        zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{int8, int4}, full, shard,
                                                      {.chunks = 4});
    };
    // Three chunks of 256 and one of 232 elements: 272 or 240 bytes inside, 144 or 128 across.
    check_traffic({2, 2}, {2, 2}, name, {2 * (3 * 272 + 240), 3 * 144 + 128}, in_chunks);
}

TEST_CASE("traffic of the secondary gather: nothing leaves the node") {
    const auto gather = [](auto& comm) {
        using secondary_type = zeropp::secondary_partition<zeropp::cast_to<float>, zeropp::host_space>;
        const int k = comm.group_size();
        zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes({}, 1000, k));
        secondary_type secondary({}, 1000, k, comm.index(), storage.view());
        std::vector<float> full(1000);
        secondary.store(host{}, full, 1);
        zeropp::secondary_partition_gather(host{}, comm, secondary, 1, full);
    };
    const std::string name = "secondary_partition_gather";
    check_traffic({2, 2}, {2, 2}, name, {4 * 500, 0}, gather);  // 1 message of 500 floats, a multiple of 16 bytes
    check_traffic({3, 2}, {3, 2}, name, {4 * 500, 0}, gather);
    check_traffic({2, 4}, {2, 4}, name, {3 * (4 * 250 + 8), 0}, gather);
    check_traffic({4, 2}, {2, 4}, name, {4 * 500, 0}, gather);  // groups of half a node
    // A group of two nodes: each message crosses to both ranks there.
    check_traffic({1, 4}, {2, 2}, name, {1008, 2 * 1008}, gather);
}
