/// \file
/// quantized_all_gather in chunks: the bits depend neither on their number nor on the execution.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>

using namespace collective_test;

namespace {

constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;

/// All chunk counts on `host`, one `host_queue` and two, on each rank.
void check_chunks(const node_map& map, std::size_t n) {
    INFO(map.name << ", " << n << " elements");
    const auto ranks = at(map.ranks());
    const std::vector<float> tensor = tensor_of(n, reference::fp32, n);
    const std::vector<float> other = tensor_of(n, reference::fp32, n + 1);
    std::vector<std::vector<std::vector<float>>> results(ranks), others(ranks);
    std::vector<char> intact(ranks, 1);
    on_ranks(map.ranks(), "chunks on " + map.name, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(map.topology(), transport);
        const auto r = at(comm.rank());
        const std::vector<float> shard = reference::slice_of(tensor, ranks, r);
        const std::vector<float> other_shard = reference::slice_of(other, ranks, r);
        const zeropp::host_queue one, two, three;
        for (const int chunks : {1, 2, 3, 7, 100}) {
            const zeropp::gather_options options{.chunks = chunks};
            guarded<std::byte> scratch(zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int4, n, options));
            const auto gather = [&](const auto& exec) {
                // Two behind one another through one workspace, of which 32 bytes of guard are left alone.
                guarded<float> full(n), other_full(n);
                const zeropp::host_view<std::byte> larger(scratch.data(), scratch.size() + 32);
                zeropp::quantized_all_gather(exec, comm, int4, shard, full.view(), options, larger);
                zeropp::quantized_all_gather(exec, comm, int4, other_shard, other_full.view(), options, larger);
                exec.intra_node.wait();
                results[r].push_back(full.values());
                others[r].push_back(other_full.values());
                intact[r] = intact[r] && full.intact() && other_full.intact() && scratch.intact();
            };
            const zeropp::host at_once;
            gather(zeropp::pipeline<zeropp::host>{at_once, at_once});
            gather(zeropp::pipeline<zeropp::host_queue>{one, one});
            gather(zeropp::pipeline<zeropp::host_queue>{one, two});
            gather(zeropp::pipeline<zeropp::host_queue>{one, two, three});
        }
    });
    const std::vector<float> expected = reference::gathered(tensor, ranks, described(int4), reference::fp32);
    const std::vector<float> other_expected = reference::gathered(other, ranks, described(int4), reference::fp32);
    for (std::size_t r = 0; r != ranks; ++r) {
        for (std::size_t k = 0; k != results[r].size(); ++k) {
            INFO("rank " << r << ", way " << k);
            REQUIRE(difference(results[r][k], expected) == "");
            REQUIRE(difference(others[r][k], other_expected) == "");
        }
        REQUIRE(intact[r]);
    }
}

}  // namespace

TEST_CASE("all-gather: chunks and executions do not show in the bits") {
    for (const node_map& map : node_maps()) {
        check_chunks(map, 10007);
        check_chunks(map, 4 * 128 + 3);
        check_chunks(map, 121);  // where some ranks have no shard
    }
}
