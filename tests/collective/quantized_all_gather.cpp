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

TEST_CASE("all-gather: wrong arguments throw on every rank, nothing is written, and the communicator stays usable") {
    struct call {
        std::string wrong;
        std::size_t shard = 250;
        std::size_t less = 0;
        std::size_t shift = 0;
        int chunks = 1;
    };
    const zeropp::two_level nodes(2, 2);
    const std::size_t n = 1000;
    const std::size_t bytes = zeropp::quantized_all_gather_workspace_bytes(nodes, int8, n);
    const std::vector<call> calls{
        {.wrong =
             "expected a workspace of at least " + std::to_string(bytes) + " bytes, given " + std::to_string(bytes - 1),
         .less = 1},
        {.wrong = "expected a workspace aligned to 16 bytes, given one that starts 8 bytes past a boundary",
         .shift = 8},
        {.wrong = "expected a shard of 250 elements of 1000, given one of 249", .shard = 249},
        {.wrong = "expected a shard of 250 elements of 1000, given one of 251", .shard = 251},
        {.wrong = "expected a shard of 250 elements of 1000, given one of 0", .shard = 0},
        {.wrong = "expected at least 1 chunk, given 0", .chunks = 0}};
    const std::vector<float> kept(n, 127.0f);  // by int8, exactly
    for (const call& c : calls) {
        std::vector<char> untouched(4), usable(4);
        const auto errors = errors_on_ranks(4, "all-gather that throws", [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(nodes, transport);
            guarded<float> full(n);
            guarded<std::byte> scratch(bytes - c.less, c.shift);
            try {
                zeropp::quantized_all_gather(host{}, comm, int8, std::vector<float>(c.shard), full.view(),
                                             {.chunks = c.chunks}, scratch.view());
            } catch (...) {
                const auto r = at(comm.rank());
                untouched[r] = full.untouched() && scratch.untouched();
                std::vector<float> then(n);
                zeropp::quantized_all_gather(host{}, comm, int8, reference::slice_of(kept, 4, r), then);
                usable[r] = then == kept;
                throw;
            }
        });
        for (std::size_t r = 0; r != 4; ++r) {
            REQUIRE(errors[r] == "quantized_all_gather: " + c.wrong);
            REQUIRE(untouched[r]);
            REQUIRE(usable[r]);
        }
    }
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
