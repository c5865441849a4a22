/// \file
/// Bytes, memory and time that a plan predicts for local steps, against `counting`, outer_optimizer and plain numbers.

#include "plan/counted.hpp"

#include <zeropp/local_steps/outer_step.hpp>
#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/step.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/flat.hpp>

using namespace plan_test;

namespace {

constexpr zeropp::block_integer<4, 128> int4;
using hops_type =
    zeropp::hops<zeropp::block_integer<4, 128>, zeropp::block_integer<4, 128>, zeropp::block_integer<4, 128>>;
using memory_type = zeropp::error_feedback<hops_type, zeropp::residuals_in_int8, zeropp::host_space>;
constexpr hops_type by_hop{int4, int4, int4};

}  // namespace

TEST_CASE("planned local steps: each rank sends the bytes of an exchange, and keeps the memory") {
    for (const auto [islands, ranks] : {grid_point{1, 2}, grid_point{2, 1}, grid_point{2, 2}, grid_point{3, 2}}) {
        const zeropp::two_level nodes(islands, ranks);
        for (const std::size_t n : {std::size_t{0}, std::size_t{5}, std::size_t{4099}, std::size_t{300'007}}) {
            for (const bool feeds_back : {false, true}) {
                zeropp::local_steps local{.islands = islands, .every = 8, .differences = zeropp::wire_format_of(int4)};
                if (feeds_back) local.residuals = zeropp::wire_format_of(memory_type::storage_at<0>());
                const zeropp::flat island(ranks);
                INFO(n << " elements, " << feeds_back);
                const std::vector<std::size_t> tensors{n};
                std::size_t memory = 0;
                check_sent(
                    nodes, nodes, "an outer step",
                    [&](int) { return zeropp::volume{0, zeropp::outer_step_volume(island, local, n)}; },
                    [&](auto& comm) {
                        zeropp::communicator between(zeropp::flat(islands),
                                                     comm.world().split(zeropp::peer_ranks(nodes, 1, comm.rank())));
                        // The first ranks of an island own the largest shards.
                        std::vector<float> shard(zeropp::partition(n, ranks).slice_size());
                        using outer_type = zeropp::outer_optimizer<zeropp::host_space>;
                        zeropp::workspace<zeropp::host_space> storage(outer_type::storage_bytes(shard));
                        outer_type outer(between.topology(), shard, storage.view());
                        zeropp::workspace<zeropp::host_space> kept(
                            memory_type::storage_bytes(between.topology(), outer.differences()));
                        memory_type residuals(between.topology(), outer.differences(), kept.view());
                        outer.start(zeropp::host{}, shard);
                        if (comm.rank() == 0) {
                            memory = storage.view().size() + (feeds_back ? kept.view().size() : 0);
                        }
                        if (feeds_back) {
                            zeropp::outer_step(zeropp::host{}, between, zeropp::with_error_feedback(by_hop, residuals),
                                               shard, outer);
                        } else {
                            zeropp::outer_step(zeropp::host{}, between, by_hop, shard, outer);
                        }
                    });
                REQUIRE(zeropp::outer_memory(island, tensors, local) == memory);
            }
        }
    }
}

TEST_CASE("planned local steps: seconds of an exchange, and the part of it that a step waits for") {
    const zeropp::two_level island(2, 4);
    const std::vector<std::size_t> tensors{8'000'000, 800};
    zeropp::local_steps local{.islands = 3, .every = 10, .differences = zeropp::wire_format_of(int4)};
    zeropp::machine m{{1e9, 0}, {1e9, 0}, 0};
    const double bytes = 8.0 * static_cast<double>(zeropp::outer_step_volume(island, local, 8'000'000) +
                                                   zeropp::outer_step_volume(island, local, 800));
    // A third of 10^6 elements to each of two islands, twice, in 4 bits and 4 bytes of scale for 128.
    CHECK(bytes == Approx(8 * 4 * (1e6 / 3) * (0.5 + 4.0 / 128)).epsilon(0.01));
    const zeropp::collective_time t = zeropp::outer_step_time(m, {1e6, 0.01}, island, tensors, local);
    CHECK(t.inter_node == Approx(bytes / 1e6 + 4 * 0.01));
    CHECK(t.total() == Approx(t.inter_node));
    m.codec_bytes_per_second = 1e9;
    const double codec = (13 * 4 * 1'000'100 + 2 * bytes / 8) / 1e9;
    CHECK(zeropp::outer_step_time(m, {1e6, 0.01}, island, tensors, local).codec == Approx(codec));
    CHECK(zeropp::local_steps_seconds(t, local, 2.0) == Approx(t.inter_node / 10));
    local.delay = 2;
    CHECK(zeropp::local_steps_seconds(t, local, 2.0) == Approx((t.inter_node - 4.0) / 10));
    CHECK(zeropp::local_steps_seconds(t, local, 200.0) == 0);
    local.islands = 1;
    CHECK(zeropp::outer_step_time(m, {1e6, 0.01}, island, tensors, local).inter_node == 0);
}
