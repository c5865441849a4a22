/// Mirrors, recovered and redistributed shards on one GPU: the host's bits on every survivor.

#include "kernels/codec_against_host.hpp"
#include "simt/collectives.hpp"
#include "simt/device.hpp"
#include "support/catch.hpp"
#include "support/host_array.hpp"

#include <zeropp/collective/secondary_partition.hpp>
#include <zeropp/elastic/partners.hpp>
#include <zeropp/elastic/recover_weights.hpp>
#include <zeropp/elastic/shard_mirror.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace simt = zeropp_test::simt;

namespace {

constexpr std::size_t n = 40'003;
constexpr int lost = 4;

/// Weights in 8 bits on each node and moments on partners; then rank 4 is lost. Returns the new shards of both.
template <class Space, template <class> class Array, class Exec>
std::vector<float> recovered(const Exec& exec, zeropp::thread_transport& world) {
    const zeropp::two_level before = zeropp::two_level::of_nodes({3, 2, 2});
    std::vector<int> all, survivors;
    for (int r = 0; r != before.size(); ++r) {
        all.push_back(r);
        if (r != lost) survivors.push_back(r);
    }
    zeropp::communicator comm(before, world.split(all));
    const zeropp::partition part(n, before.size());
    const auto whole = simt::tensor<float>(n, 1);
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(part.offset(comm.rank()));
    Array<float> full(whole), moments(std::vector<float>(first, first + part.size(comm.rank())));

    using weights = zeropp::secondary_partition<zeropp::block_integer<8, 256>, Space>;
    zeropp::workspace<Space> kept(weights::storage_bytes({}, n, comm.group_size()));
    weights secondary({}, n, comm.group_size(), comm.index(), kept.view());
    secondary.store(exec, full.view(), 3);

    const std::vector<int> members = zeropp::partner_ranks(before, comm.rank());
    zeropp::communicator partners(before.shrink(members), comm.world().split(members));
    using mirror_type = zeropp::shard_mirror<zeropp::cast_to<zeropp::bfloat16>, Space>;
    zeropp::workspace<Space> copies(mirror_type::storage_bytes({}, before, n, comm.rank()));
    mirror_type mirror({}, before, comm.rank(), n, copies.view());
    zeropp::mirror_shards(exec, partners, mirror, moments.view(), 3);

    if (comm.rank() == lost) {
        world.split(std::vector<int>{lost});
        exec.wait();
        return {};
    }
    zeropp::communicator next(before.shrink(survivors), world.split(survivors));
    const zeropp::survivors_of from{before, survivors};
    const std::vector<float> none(zeropp::partition(n, next.size()).size(next.rank()));
    Array<float> shard(none), new_moments(none);
    zeropp::recover_weights(exec, next, from, secondary, n, shard.view());
    zeropp::redistribute_shards(exec, next, from, n, moments.view(), new_moments.view());
    zeropp::recover_weights(exec, next, from, mirror, n, new_moments.view(), {.lost_shards_only = true});
    exec.wait();
    std::vector<float> both = shard.read();
    for (const float x : new_moments.read()) both.push_back(x);
    return both;
}

}  // namespace

TEST_CASE("features: survivors recover weights and moments", "[gpu][slice]") {
    const simt::ranks_and_nodes ranks{"3 + 2 + 2", zeropp::two_level::of_nodes({3, 2, 2})};
    std::vector<std::vector<float>> expected(7), given(7);
    simt::on_ranks(ranks, "a recovery on the host", [&](zeropp::thread_transport& world) {
        expected[static_cast<std::size_t>(world.rank())] =
            recovered<zeropp::host_space, zeropp_test::host_array>(zeropp::host{}, world);
    });
    simt::on_ranks(ranks, "a recovery on the device", [&](zeropp::thread_transport& world) {
        const simt::owned_stream stream;
        given[static_cast<std::size_t>(world.rank())] =
            recovered<zeropp::device_space, simt::device_array>(stream.exec(), world);
    });
    for (std::size_t r = 0; r != 7; ++r) {
        INFO("rank " << r);
        REQUIRE(expected[r].empty() == (r == lost));
        REQUIRE(zeropp_test::difference(given[r], expected[r]) == "");
    }
}
