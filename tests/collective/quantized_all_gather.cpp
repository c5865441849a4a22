/// \file
/// The contract of quantized_all_gather beyond its bits: placement, workspace, errors, executions, flat topologies.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/topology/flat.hpp>

using namespace collective_test;
using zeropp::host;

namespace {

constexpr zeropp::block_integer<8, 256> int8;
const std::size_t elements = 1003;

std::size_t workspace_for(const zeropp::two_level& nodes, std::size_t n) {
    return zeropp::quantized_all_gather_workspace_bytes(nodes, int8, n);
}

}  // namespace

TEST_CASE("all-gather: a flat topology, a queue, views and the allocating overload give the same bits") {
    const std::vector<float> tensor = tensor_of(elements, reference::fp32, 2);
    const std::vector<float> expected = reference::gathered(tensor, 3, described(int8), reference::fp32);
    std::vector<std::vector<std::vector<float>>> results(3);
    on_ranks(3, "all-gather in several ways", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::flat(3), transport);
        const std::vector<float> shard = reference::slice_of(tensor, 3, at(comm.rank()));
        const zeropp::host_view<const float> shard_view(shard.data(), shard.size());
        zeropp::workspace<zeropp::host_space> scratch(
            zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int8, elements));
        const zeropp::host_queue queue;
        std::vector<std::vector<float>> fulls(4, std::vector<float>(elements));
        zeropp::quantized_all_gather(host{}, comm, int8, shard, fulls[0]);
        zeropp::quantized_all_gather(host{}, comm, int8, shard_view, std::span<float>(fulls[1]), {}, scratch.view());
        zeropp::quantized_all_gather(queue, comm, int8, shard, fulls[2]);
        // Two in a row through one workspace: a queue keeps them in order.
        zeropp::quantized_all_gather(queue, comm, int8, shard_view, fulls[3], {}, scratch.view());
        zeropp::quantized_all_gather(queue, comm, int8, shard_view, fulls[3], {}, scratch.view());
        queue.wait();
        results[at(comm.rank())] = fulls;
    });
    for (const auto& fulls : results) {
        for (const auto& full : fulls) REQUIRE(difference(full, expected) == "");
    }
}

TEST_CASE("all-gather: more workspace than needed is left alone") {
    on_ranks(4, "all-gather", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const std::vector<float> shard(reference::slice_of(std::vector<float>(elements), 4, at(comm.rank())));
        std::vector<float> full(elements);
        guarded<std::byte> scratch(workspace_for(comm.topology(), elements));
        const zeropp::host_view<std::byte> larger(scratch.data(), scratch.view().size() + 32);  // 32 guard bytes
        zeropp::quantized_all_gather(host{}, comm, int8, shard, full, {}, larger);
        if (!scratch.intact()) throw zeropp::error("wrote behind the workspace that it asked for");
    });
}

TEST_CASE("all-gather: wrong arguments throw on every rank and nothing is written") {
    struct call {
        std::string wrong;
        std::size_t shard;
        std::size_t scratch;
        std::size_t shift;
    };
    const zeropp::two_level nodes(2, 2);
    const std::size_t n = 1000;
    const std::size_t bytes = workspace_for(nodes, n);
    const std::vector<call> calls{
        {"expected a workspace of at least " + std::to_string(bytes) + " bytes, given " + std::to_string(bytes - 1),
         250, bytes - 1, 0},
        {"expected a workspace aligned to 16 bytes, given one that starts 8 bytes past a boundary", 250, bytes, 8},
        {"expected a shard of 250 elements of 1000, given one of 249", 249, bytes, 0},
        {"expected a shard of 250 elements of 1000, given one of 251", 251, bytes, 0},
        {"expected a shard of 250 elements of 1000, given one of 0", 0, bytes, 0}};
    for (const call& c : calls) {
        std::vector<char> untouched(4);
        const auto errors = errors_on_ranks(4, "all-gather that throws", [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(nodes, transport);
            guarded<float> full(n);
            guarded<std::byte> scratch(c.scratch, c.shift);
            try {
                zeropp::quantized_all_gather(host{}, comm, int8, std::vector<float>(c.shard), full.view(), {},
                                             scratch.view());
            } catch (...) {
                untouched[at(comm.rank())] = full.untouched() && scratch.untouched();
                throw;
            }
        });
        for (std::size_t r = 0; r != 4; ++r) {
            REQUIRE(errors[r] == "quantized_all_gather: " + c.wrong);
            REQUIRE(untouched[r]);
        }
    }
}

TEST_CASE("all-gather: a wrong call leaves the communicator usable") {
    const std::vector<float> tensor = tensor_of(64, reference::fp32, 3);
    std::vector<std::vector<float>> results(2, std::vector<float>(64));
    on_ranks(2, "all-gather after an error", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::two_level(1, 2), transport);
        const auto r = at(comm.rank());
        try {
            zeropp::quantized_all_gather(host{}, comm, int8, std::vector<float>(1), results[r]);
        } catch (const zeropp::precondition_error&) {
        }
        zeropp::quantized_all_gather(host{}, comm, int8, reference::slice_of(tensor, 2, r), results[r]);
    });
    const std::vector<float> expected = reference::gathered(tensor, 2, described(int8), reference::fp32);
    for (const auto& result : results) REQUIRE(difference(result, expected) == "");
}

TEST_CASE("all-gather: a block with NaN or Inf is NaN on every rank, and no other block is") {
    std::vector<float> tensor = tensor_of(2000, reference::fp32, 4);  // slices of 500: blocks of 256 and 244
    tensor[500 + 300] = INFINITY;
    tensor[1500 + 7] = zeropp::quiet_nan;
    std::vector<std::vector<float>> results(4, std::vector<float>(2000));
    on_ranks(4, "all-gather of NaN", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const auto r = at(comm.rank());
        zeropp::quantized_all_gather(host{}, comm, int8, reference::slice_of(tensor, 4, r), results[r]);
    });
    for (const auto& full : results) {
        for (std::size_t i = 0; i != full.size(); ++i) {
            const bool affected = (i >= 756 && i < 1000) || (i >= 1500 && i < 1756);
            if (std::isnan(full[i]) != affected) FAIL("element " << i << " is " << full[i]);
        }
    }
}
