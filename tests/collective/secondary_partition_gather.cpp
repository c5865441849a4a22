/// \file
/// secondary_partition_gather: the tensor of the forward gather again, from inside the group, and never a stale one.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>

using namespace collective_test;
using zeropp::host;

namespace {

constexpr zeropp::block_integer<8, 256> int8;
constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;

/// Forward gather on `nodes`, then backward gather in groups of `k` ranks. `first` and `second` are quantizers.
template <class T, class First, class Second>
void check_two_passes(const node_map& nodes, const zeropp::two_level& groups, std::size_t n, const First& first,
                      const Second& second) {
    INFO(nodes.name << ", groups of " << groups.group_size(0) << ", " << n << " elements, "
                    << zeropp::short_text(second.name()).str());
    const auto ranks = at(nodes.ranks());
    const std::vector<float> tensor = tensor_of(n, format_of<T>, n);
    std::vector<std::vector<float>> forward(ranks), backward(ranks), allocating(ranks);
    std::vector<char> intact(ranks);
    std::vector<std::uint64_t> bytes_out(ranks), bytes_in(ranks);
    on_ranks(nodes.ranks(), "hpZ on " + nodes.name, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(nodes.topology(), transport);
        // Bytes that leave the secondary group are counted as bytes across.
        zeropp::communicator group_comm(groups, zeropp::counting(transport, groups));
        const auto r = at(comm.rank());
        const int k = group_comm.group_size();
        using secondary_type = zeropp::secondary_partition<Second, zeropp::host_space>;
        guarded<std::byte> storage(secondary_type::storage_bytes(second, n, k));
        secondary_type secondary(second, n, k, group_comm.index(), storage.view());
        guarded<T> full(n), again(n);
        guarded<std::byte> scratch(zeropp::quantized_all_gather_workspace_bytes(comm.topology(), first, n));
        zeropp::quantized_all_gather(host{}, comm, first, narrowed<T>(reference::slice_of(tensor, ranks, r)),
                                     full.view(), {}, scratch.view());
        secondary.store(host{}, full.view(), 41);
        guarded<std::byte> scratch_again(zeropp::secondary_partition_gather_workspace_bytes(k, second, n));
        zeropp::secondary_partition_gather(host{}, group_comm, secondary, 41, again.view(), scratch_again.view());
        forward[r] = full.values();
        backward[r] = again.values();
        std::vector<T> third(n);
        const zeropp::host_queue queue;
        zeropp::secondary_partition_gather(queue, group_comm, secondary, 41, third);
        allocating[r] = widened(third.data(), n);
        intact[r] = storage.intact() && full.intact() && again.intact() && scratch.intact() && scratch_again.intact();
        bytes_out[r] = group_comm.world().total().inter_node_bytes;
        bytes_in[r] = group_comm.world().total().intra_node_bytes;
    });
    const std::vector<float> expected = reference::gathered(tensor, ranks, described(first), format_of<T>);
    for (std::size_t r = 0; r != ranks; ++r) {
        INFO("rank " << r);
        const auto k = at(groups.group_size(groups.group_of(static_cast<int>(r))));
        const std::vector<float> expected_again = reference::gathered(expected, k, described(second), format_of<T>);
        REQUIRE(difference(forward[r], expected) == "");
        REQUIRE(difference(backward[r], expected_again) == "");
        REQUIRE(difference(allocating[r], expected_again) == "");
        REQUIRE(intact[r]);
        REQUIRE(bytes_out[r] == 0);
        REQUIRE(bytes_in[r] == 2 * (k - 1) * zeropp::wire_bytes(second, (n + k - 1) / k));
    }
}

}  // namespace

TEST_CASE("secondary gather: the bits of the forward gather, in groups that are the nodes") {
    for (const node_map& map : node_maps()) {
        for (const std::size_t n : {0u, 1u, 3u, 257u, 1003u}) {
            check_two_passes<float>(map, map.topology(), n, int8, zeropp::cast_to<float>{});
            check_two_passes<float>(map, map.topology(), n, int8, int4);
        }
    }
}

TEST_CASE("secondary gather: groups smaller than the node, larger, and of one rank") {
    const node_map two_nodes{"2 x 4", {0, 0, 0, 0, 1, 1, 1, 1}};
    for (const int k : {1, 2, 4, 8}) {
        const auto groups = zeropp::two_level::of_size(8, k);
        check_two_passes<float>(two_nodes, groups, 1003, int8, zeropp::cast_to<float>{});
        check_two_passes<zeropp::bfloat16>(two_nodes, groups, 518, int8, zeropp::cast_to<zeropp::bfloat16>{});
    }
}

TEST_CASE("secondary gather: forward and backward enqueued on one queue, one wait at the end") {
    const std::vector<float> tensor = tensor_of(1003, reference::fp32, 9);
    std::vector<std::vector<float>> results(4, std::vector<float>(1003));
    on_ranks(4, "hpZ on a queue", [&](zeropp::thread_transport& transport) {
        const zeropp::two_level nodes(2, 2);
        zeropp::communicator comm(nodes, transport);
        const auto r = at(comm.rank());
        using secondary_type = zeropp::secondary_partition<zeropp::cast_to<float>, zeropp::host_space>;
        zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes({}, 1003, 2));
        secondary_type secondary({}, 1003, 2, comm.index(), storage.view());
        zeropp::workspace<zeropp::host_space> scratch(zeropp::quantized_all_gather_workspace_bytes(nodes, int8, 1003));
        zeropp::workspace<zeropp::host_space> scratch_again(
            zeropp::secondary_partition_gather_workspace_bytes(2, zeropp::cast_to<float>{}, 1003));
        const std::vector<float> shard = reference::slice_of(tensor, 4, r);
        std::vector<float> full(1003);
        const zeropp::host_queue queue;
        zeropp::quantized_all_gather(queue, comm, int8, shard, full, {}, scratch.view());
        secondary.store(queue, full, 1);
        zeropp::secondary_partition_gather(queue, comm, secondary, 1, results[r], scratch_again.view());
        queue.wait();
    });
    const std::vector<float> expected = reference::gathered(tensor, 4, described(int8), reference::fp32);
    for (const auto& result : results) REQUIRE(difference(result, expected) == "");
}

TEST_CASE("secondary gather: stale, empty and invalidated partitions are errors, and nothing is written") {
    std::vector<std::vector<std::string>> errors(4);
    std::vector<char> untouched(4);
    on_ranks(4, "stale partitions", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const auto r = at(comm.rank());
        using secondary_type = zeropp::secondary_partition<zeropp::block_integer<8, 256>, zeropp::host_space>;
        guarded<std::byte> storage(secondary_type::storage_bytes(int8, 100, 2));
        secondary_type secondary(int8, 100, 2, comm.index(), storage.view());
        guarded<float> full(100);
        guarded<std::byte> scratch(zeropp::secondary_partition_gather_workspace_bytes(2, int8, 100));
        const auto gather = [&](std::uint64_t version) {
            try {
                zeropp::secondary_partition_gather(host{}, comm, secondary, version, full.view(), scratch.view());
                errors[r].push_back("");
            } catch (const zeropp::precondition_error& e) {
                errors[r].push_back(e.what());
            }
        };
        gather(1);  // empty
        secondary.store(host{}, std::vector<float>(100, 1.0f), 1);
        gather(2);  // the weights have moved on
        gather(0);  // nor may the partition be ahead
        secondary.invalidate();
        gather(1);
        untouched[r] = full.untouched() && scratch.untouched();
        secondary.store(host{}, std::vector<float>(100, 1.0f), 2);
        gather(2);
    });
    const std::string expected = "secondary_partition_gather: expected a secondary partition of version ";
    for (std::size_t r = 0; r != 4; ++r) {
        REQUIRE(errors[r] == std::vector<std::string>{
                                 expected + "1, given an empty one", expected + "2, given one of version 1",
                                 expected + "0, given one of version 1", expected + "1, given an empty one", ""});
        REQUIRE(untouched[r]);
    }
}

TEST_CASE("secondary gather: wrong sizes, groups and workspaces are errors") {
    using secondary_type = zeropp::secondary_partition<zeropp::block_integer<8, 256>, zeropp::host_space>;
    const std::size_t bytes = zeropp::secondary_partition_gather_workspace_bytes(2, int8, 100);
    struct call {
        std::string wrong;
        std::size_t elements = 100;
        int group_size = 2;
        int index_off = 0;
        std::size_t less = 0;
        std::size_t shift = 0;
    };
    const std::vector<call> calls{{.wrong = "expected a tensor of 100 elements, given one of 99", .elements = 99},
                                  {.wrong = "of a group of 2, given one for rank", .group_size = 4},
                                  {.wrong = "of a group of 2, given one for rank", .index_off = 1},
                                  {.wrong = "expected a workspace of at least " + std::to_string(bytes) +
                                            " bytes, given " + std::to_string(bytes - 1),
                                   .less = 1},
                                  {.wrong = "expected a workspace aligned to 16 bytes", .shift = 8}};
    for (const call& c : calls) {
        const auto errors =
            errors_on_ranks(4, "secondary gather that throws", [&](zeropp::thread_transport& transport) {
                zeropp::communicator comm(zeropp::two_level(2, 2), transport);
                zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes(int8, 100, 2));
                secondary_type secondary(int8, 100, c.group_size, (comm.index() + c.index_off) % 2, storage.view());
                secondary.store(host{}, std::vector<float>(100, 1.0f), 1);
                guarded<float> full(c.elements);
                guarded<std::byte> scratch(bytes - c.less, c.shift);
                zeropp::secondary_partition_gather(host{}, comm, secondary, 1, full.view(), scratch.view());
            });
        for (const std::string& e : errors) {
            INFO(e);
            REQUIRE(e.find("secondary_partition_gather: ") == 0);
            REQUIRE(e.find(c.wrong) != std::string::npos);
        }
    }
}

TEST_CASE("secondary gather: one rank's stale partition is an error on every rank of its group and on no other") {
    // With groups of one rank there is nobody to tell.
    for (const int k : {1, 2}) {
        const auto errors =
            errors_on_ranks(4, "a stale partition on one rank", [&](zeropp::thread_transport& transport) {
                zeropp::communicator comm(zeropp::two_level::of_size(4, k), zeropp::checked(transport));
                using secondary_type = zeropp::secondary_partition<zeropp::cast_to<float>, zeropp::host_space>;
                zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes({}, 100, k));
                secondary_type secondary({}, 100, k, comm.index(), storage.view());
                secondary.store(host{}, std::vector<float>(100, 1.0f), comm.rank() == 2 ? 6 : 7);
                std::vector<float> full(100);
                // The first node has finished before the other begins: neither waits for the other.
                if (comm.rank() < 2) zeropp::secondary_partition_gather(host{}, comm, secondary, 7, full);
                transport.all_gather(host{}, nullptr, nullptr, 0);
                if (comm.rank() >= 2) zeropp::secondary_partition_gather(host{}, comm, secondary, 7, full);
            });
        INFO("groups of " << k);
        REQUIRE(errors[0] == "");
        REQUIRE(errors[1] == "");
        REQUIRE(errors[2].find("expected a secondary partition of version 7, given one of version 6") !=
                std::string::npos);
        REQUIRE((errors[3] == errors[2]) == (k == 2));
        REQUIRE(errors[3].empty() == (k == 1));
    }
}
