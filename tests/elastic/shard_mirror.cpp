/// \file
/// shard_mirror: shards of ranks that have died come from partner nodes, or are named as lost. Bytes and memory are the
/// planned ones.

#include "collective/loss.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/elastic/held_copies.hpp>
#include <zeropp/elastic/partners.hpp>
#include <zeropp/elastic/recover_weights.hpp>
#include <zeropp/elastic/shard_mirror.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/three_level.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>

#include <array>
#include <chrono>
#include <cstddef>

using namespace collective_test;
using namespace std::chrono_literals;
using zeropp::host;

namespace {

template <class Q>
using mirror_of = zeropp::shard_mirror<Q, zeropp::host_space>;
using fp32 = zeropp::cast_to<float>;
using bf16 = zeropp::cast_to<zeropp::bfloat16>;
using int8 = zeropp::block_integer<8, 64>;

/// Nodes that keep copies of the shards of node g: pairs in order or, of an odd number of nodes, the last three.
std::vector<int> partner_nodes(int nodes, int g) {
    if (nodes % 2 == 1 && g >= nodes - 3) {
        std::vector<int> others;
        for (int h = nodes - 3; h != nodes; ++h) {
            if (h != g) others.push_back(h);
        }
        return others;
    }
    return {g % 2 == 0 ? g + 1 : g - 1};
}

/// Ranks that keep a copy of the shards of `rank`: its column's, of `largest` columns, in each partner node.
std::vector<int> holders(const zeropp::two_level& ranks, int rank) {
    const int g = ranks.group_of(rank);
    const std::vector<int> partners = partner_nodes(ranks.groups(), g);
    int largest = ranks.group_size(g);
    for (const int h : partners) largest = std::max(largest, ranks.group_size(h));
    std::vector<int> found;
    for (const int h : partners) {
        const int k = ranks.group_size(h), c = ranks.index_of(rank);
        found.push_back(ranks.rank_of(h, c < largest / k * k ? c % k : c - (largest - k)));
    }
    return found;
}

/// Mirrors shards twice, loses ranks, and recovers the shards of dead ranks: the second ones, or named as lost.
template <class Q, bool List>
void check(const loss& c) {
    INFO(c.text());
    const auto ranks = at(c.map.ranks());
    const zeropp::two_level before = c.map.topology();
    const std::vector<int> survivors = c.survivors();
    std::vector<std::size_t> sizes;
    for (const drawn_tensor& t : c.tensors) sizes.push_back(t.n);
    const auto values = [&](std::size_t t, std::size_t turn) {
        return tensor_of(c.tensors[t].n, reference::fp32, 10 * turn + t);
    };
    std::vector<numbers> gathered(ranks), recovered(ranks);
    std::vector<std::string> errors(ranks);
    std::vector<char> intact(ranks);
    std::vector<zeropp::volume> sent(ranks), planned(ranks);
    std::vector<std::size_t> kept(ranks);
    on_ranks(c.map.ranks(), c.text(), [&](zeropp::thread_transport& transport) {
        zeropp::counting world(transport, before);
        const auto r = at(transport.rank());
        zeropp::communicator comm(before, world.split(zeropp::detail::world_ranks(c.map.ranks())));
        const std::vector<int> members = zeropp::partner_ranks(before, comm.rank());
        zeropp::communicator partners(before.shrink(members), world.split(members));
        tensor_memory<float, List> whole_memory, first_memory, second_memory;
        for (std::size_t t = 0; t != c.tensors.size(); ++t) {
            const drawn_tensor& tensor = c.tensors[t];
            whole_memory.add(std::vector<float>(tensor.n), tensor.row);
            first_memory.add(tensor.slice_of(values(t, 1), ranks, r), 1);
            second_memory.add(tensor.slice_of(values(t, 2), ranks, r), 1);
        }
        const auto whole = whole_memory.operand(before);
        const auto& shape = shape_of<List>(whole, c);
        zeropp::workspace<zeropp::host_space> storage(mirror_of<Q>::storage_bytes(Q(), before, shape, comm.rank()));
        kept[r] = storage.view().size();
        mirror_of<Q> mirror(Q(), before, comm.rank(), shape, storage.view());
        zeropp::mirror_shards(host{}, partners, mirror, first_memory.operand(), 1);
        const zeropp::host_queue queue;
        const zeropp::traffic between = world.total();
        zeropp::mirror_shards(queue, partners, mirror, second_memory.operand(), 2);
        const zeropp::traffic after = world.total();
        sent[r] = {after.intra_node_bytes - between.intra_node_bytes,
                   after.inter_node_bytes - between.inter_node_bytes};
        if constexpr (!List) {
            planned[r] = zeropp::mirror_volume(before, sizes, zeropp::wire_format_of(Q()), comm.rank());
        }
        zeropp::quantized_all_gather(host{}, comm, Q(), second_memory.operand(), whole);
        gathered[r] = whole_memory.values();
        if (c.has(comm.rank())) {
            transport.split(std::vector<int>{comm.rank()});
            return;
        }
        zeropp::communicator next(before.shrink(survivors), transport.split(survivors));
        tensor_memory<float, List> shard_memory = shards_to_fill<float, List>(c, next.rank());
        const zeropp::survivors_of from{before, survivors};
        try {
            const auto version =
                zeropp::recover_weights(queue, next, from, mirror, shape, shard_memory.operand(),
                                        {.lost_shards_only = true, .chunk_bytes = c.options.chunk_bytes});
            if (version != 2) errors[r] = "another version";
        } catch (const zeropp::no_copy_error& e) {
            errors[r] = e.what();
        }
        recovered[r] = shard_memory.values();
        intact[r] = shard_memory.intact();
    });

    std::string lost;
    for (std::size_t t = 0; t != c.tensors.size() && lost.empty(); ++t) {
        for (std::size_t e = 0; e != c.tensors[t].n && lost.empty(); ++e) {
            const int owner = static_cast<int>(e / c.tensors[t].slice(ranks));
            bool held = !c.has(owner);
            for (const int h : holders(before, owner)) held = held || !c.has(h);
            if (!held) lost = "none of version 2 for elements " + std::to_string(e) + " to ";
        }
    }
    std::size_t most = 0;
    for (std::size_t r = 0; r != ranks; ++r) {
        if (!List) {
            const int node = before.group_of(static_cast<int>(r));
            REQUIRE(sent[r] == planned[r]);
            REQUIRE(sent[r].inter_node <= sent[at(before.rank_of(node, before.group_size(node) - 1))].inter_node);
        }
        most = std::max(most, kept[r]);
    }
    if (!List) REQUIRE(most == zeropp::mirror_memory(before, sizes, zeropp::wire_format_of(Q())));
    for (std::size_t s = 0; s != survivors.size(); ++s) {
        const auto r = at(survivors[s]);
        INFO("survivor " << r);
        REQUIRE(intact[r]);
        REQUIRE(errors[r] == errors[at(survivors[0])]);
        REQUIRE((lost.empty() ? errors[r].empty() : errors[r].find(lost) != std::string::npos));
        for (std::size_t t = 0; t != c.tensors.size(); ++t) {
            const drawn_tensor& tensor = c.tensors[t];
            std::vector<float> expected;
            for (std::size_t i = 0; i != tensor.size(survivors.size(), s); ++i) {
                const std::size_t e = tensor.begin(survivors.size(), s) + i;
                const bool comes = lost.empty() && c.owner_is_dead(tensor, e);
                expected.push_back(comes ? gathered[r][t][e] : untouched);
            }
            REQUIRE(difference(recovered[r][t], expected) == "");
        }
    }
}

}  // namespace

TEST_CASE("shard_mirror: any loss on any nodes, of arrays and lists, of elements and blocks") {
    std::vector<node_map> maps;
    for (const node_map& map : node_maps()) {
        if (map.topology().groups() > 1) maps.push_back(map);
    }
    maps.push_back({"5 nodes of 2, 1, 3, 1, 2", {0, 0, 1, 2, 2, 2, 3, 4, 4}});
    for_each_loss(maps, [](std::size_t turn, const loss& array, const loss& list) {
        if (turn % 2 == 0) {
            check<fp32, false>(array);
            check<int8, true>(list);
        } else {
            check<int8, false>(array);
            check<fp32, true>(list);
        }
    });
}

TEMPLATE_TEST_CASE("shard_mirror: messages that fail leave the old shards and version", "", host, zeropp::host_queue) {
    std::vector<std::uint64_t> versions(4);
    std::vector<std::vector<float>> shards(4);
    zeropp::run_on_threads(
        4,
        [&](zeropp::thread_transport transport) {
            const zeropp::two_level before(2, 2);
            zeropp::communicator comm(before, transport);
            const auto r = at(comm.rank());
            const std::vector<int> members = zeropp::partner_ranks(before, comm.rank());
            zeropp::communicator partners(before.shrink(members), transport.split(members));
            zeropp::workspace<zeropp::host_space> storage(
                mirror_of<fp32>::storage_bytes({}, before, std::size_t{8}, comm.rank()));
            mirror_of<fp32> mirror({}, before, comm.rank(), std::size_t{8}, storage.view());
            zeropp::mirror_shards(host{}, partners, mirror, std::vector<float>(2, static_cast<float>(r)), 1);
            // Ranks 0 and 2 must not shrink while the others still exchange version 1.
            const std::byte own{};
            std::array<std::byte, 4> met{};
            transport.all_gather(host{}, &own, met.data(), 1);
            if (r == 3) return;
            const TestType exec;
            try {
                zeropp::mirror_shards(exec, partners, mirror, std::vector<float>(2, 9.0f), 2);
            } catch (const zeropp::lost_rank_error&) {
            }
            auto [next, survivors] = comm.shrink();
            shards[r].assign(zeropp::partition(8, 3).size(next.rank()), untouched);
            versions[r] = zeropp::recover_weights(host{}, next, zeropp::survivors_of{before, survivors}, mirror,
                                                  std::size_t{8}, shards[r], {.lost_shards_only = true});
        },
        {.timeout = 500ms});
    // Ranks 0 and 2 are partners and have version 2; rank 1 keeps the shard of rank 3 of version 1.
    REQUIRE(versions == std::vector<std::uint64_t>{1, 1, 1, 0});
    REQUIRE(shards[0] == std::vector<float>(3, untouched));
    REQUIRE(shards[1] == std::vector<float>(3, untouched));
    REQUIRE(shards[2] == std::vector<float>(2, 3.0f));
}

TEST_CASE("shard_mirror: wrong partners, sizes and storage are errors on all ranks") {
    struct call {
        std::string wrong;
        std::size_t shard = 25;
        std::uint64_t version_off = 0;
        bool world = false;
        bool flat = false;
        bool reversed = false;
        bool overlaps = false;
    };
    const std::vector<call> calls{
        {.wrong = "expected a shard of 25 elements of 100, given one of 26", .shard = 26},
        {.wrong = "version 1", .version_off = 1},
        {.wrong = "given rank 0 of 2 groups of 1 ranks", .world = true},
        {.wrong = "given rank 0 of 1 groups of 4 ranks", .flat = true},
        {.wrong = "expected rank 3 of a communicator over topology.shrink(partner_ranks(topology, rank)), given rank 0",
         .reversed = true},
        {.wrong = "expected a shard apart from the mirror", .overlaps = true}};
    for (const call& c : calls) {
        const auto errors = errors_on_ranks(4, "a mirror that throws", [&](zeropp::thread_transport& transport) {
            const zeropp::two_level before(2, 2);
            const int rank = transport.rank();
            const std::vector<int> half{rank % 2, rank % 2 + 2};
            auto checked = zeropp::checked(transport);
            const std::vector<int> all = c.reversed ? std::vector<int>{3, 2, 1, 0} : std::vector<int>{0, 1, 2, 3};
            zeropp::communicator partners(c.world  ? zeropp::two_level(2, 1)
                                          : c.flat ? zeropp::two_level(1, 4)
                                                   : before,
                                          checked.split(c.world ? half : all));
            zeropp::workspace<zeropp::host_space> storage(
                mirror_of<fp32>::storage_bytes({}, before, std::size_t{100}, rank));
            mirror_of<fp32> mirror({}, before, rank, std::size_t{100}, storage.view());
            std::vector<float> memory(c.shard);
            zeropp::view<float, zeropp::host_space> shard(memory.data(), memory.size());
            if (c.overlaps) shard = {reinterpret_cast<float*>(storage.view().data()), c.shard};
            zeropp::mirror_shards(host{}, partners, mirror, shard, 1 + (rank == 2 ? c.version_off : 0));
        });
        for (const std::string& e : errors) REQUIRE(e.find(c.wrong) != std::string::npos);
    }
    using none = std::vector<std::byte>;
    none storage;
    REQUIRE_THROWS_WITH(mirror_of<fp32>({}, zeropp::two_level(1, 4), 0, std::size_t{8}, storage),
                        "partner_ranks: expected at least 2 groups, given 1 groups of 4 ranks");
    REQUIRE_THROWS_WITH(mirror_of<fp32>({}, zeropp::two_level(2, 2), 0, std::size_t{8}, storage),
                        Catch::Contains("shard_mirror: expected a workspace"));
    REQUIRE_THROWS_WITH(mirror_of<fp32>({}, zeropp::two_level(2, 2), 4, std::size_t{8}, storage),
                        "partner_ranks: expected a rank from 0 to 3, given 4");
    REQUIRE_THROWS_WITH(mirror_of<fp32>::storage_bytes({}, zeropp::two_level(2, 2), std::size_t{8}, -1),
                        "partner_ranks: expected a rank from 0 to 3, given -1");
    using replica_type = zeropp::secondary_replica<fp32, zeropp::host_space>;
    using secondary_type = zeropp::secondary_partition<fp32, zeropp::host_space>;
    for (const int rank : {-1, 4}) {
        const std::string words = "expected a rank from 0 to 3, given " + std::to_string(rank);
        CHECK_THROWS_WITH(replica_type(zeropp::two_level(2, 2), rank, std::size_t{8}, storage),
                          "secondary_replica: " + words);
        CHECK_THROWS_WITH(replica_type::storage_bytes(zeropp::two_level(2, 2), std::size_t{8}, rank),
                          "secondary_replica: " + words);
        CHECK_THROWS_WITH(secondary_type({}, 8, 4, rank, storage), "secondary_partition: " + words);
    }
    for (const int group : {0, -2}) {
        const std::string words = "secondary_partition: expected a group of at least 1 rank, given ";
        CHECK_THROWS_WITH(secondary_type({}, 8, group, 0, storage), words + std::to_string(group));
        CHECK_THROWS_WITH(secondary_type::storage_bytes({}, 8, group), words + std::to_string(group));
    }
}

TEST_CASE("shard_mirror: with three levels, another site keeps a rank's shards if there is one") {
    constexpr std::size_t n = 1003;
    const std::vector<float> tensor = tensor_of(n, reference::fp32, 1);
    for (const zeropp::three_level& ranks :
         {zeropp::three_level(2, 2, 2), zeropp::three_level(3, 1, 2), zeropp::three_level(1, 3, 1)}) {
        numbers stored(at(ranks.size())), expected(at(ranks.size()));
        std::vector<zeropp::volume> sent(at(ranks.size()));
        on_ranks(ranks.size(), "mirrors over sites", [&](zeropp::thread_transport& transport) {
            zeropp::counting world(transport, ranks);
            const int rank = world.rank();
            const std::vector<int> members = zeropp::partner_ranks(ranks, rank);
            zeropp::communicator partners(ranks.shrink(members), world.split(members));
            zeropp::workspace<zeropp::host_space> storage(mirror_of<fp32>::storage_bytes({}, ranks, n, rank));
            mirror_of<fp32> mirror({}, ranks, rank, n, storage.view());
            zeropp::mirror_shards(host{}, partners, mirror, reference::slice_of(tensor, at(ranks.size()), at(rank)), 1);
            const zeropp::traffic bytes = world.total();
            sent[at(rank)] = {bytes.intra_node_bytes, bytes.inter_node_bytes, bytes.inter_site_bytes};
            int i = 0;
            for (const zeropp::detail::mirrored_shard& kept : mirror.kept()) {
                const auto shard = reference::slice_of(tensor, at(ranks.size()), at(kept.owner));
                const auto* message = reinterpret_cast<const float*>(mirror.message(i++));
                stored[at(rank)].insert(stored[at(rank)].end(), message, message + shard.size());
                expected[at(rank)].insert(expected[at(rank)].end(), shard.begin(), shard.end());
            }
        });
        for (int rank = 0; rank != ranks.size(); ++rank) {
            CHECK(difference(stored[at(rank)], expected[at(rank)]) == "");
            CHECK_FALSE(stored[at(rank)].empty());
            CHECK(sent[at(rank)] == zeropp::mirror_volume(ranks, std::array{n}, zeropp::wire_format_of(fp32()), rank));
            CHECK((sent[at(rank)].inter_site != 0) == (extent(ranks, 2) > 1));
        }
    }
}

TEST_CASE("shard_mirror: another topology of as many ranks, or nothing lost") {
    // Ranks 0 and 1 are a node; other maps of four ranks onto nodes of two are another topology.
    const auto recover = [](std::vector<int> nodes, bool stored, std::size_t n, bool all_survive) {
        return errors_on_ranks(4, "recovery from a mirror", [=](zeropp::thread_transport& transport) {
            const zeropp::two_level before(2, 2);
            zeropp::communicator comm(before, transport);
            const std::vector<int> members = zeropp::partner_ranks(before, comm.rank());
            zeropp::communicator partners(before.shrink(members), comm.world().split(members));
            zeropp::workspace<zeropp::host_space> storage(mirror_of<fp32>::storage_bytes({}, before, n, comm.rank()));
            mirror_of<fp32> mirror({}, before, comm.rank(), n, storage.view());
            const std::vector<float> own(zeropp::partition(n, 4).size(comm.rank()), 1.0f);
            if (stored) zeropp::mirror_shards(host{}, partners, mirror, own, 7);
            std::vector<int> left = members;
            if (!all_survive) left.pop_back();
            const int rank = comm.rank();
            auto next = transport.split(rank == 3 && !all_survive ? std::vector<int>{3} : left);
            if (next.size() < 3) return;
            zeropp::communicator after(zeropp::flat(next.size()), zeropp::checked(next));
            std::vector<float> shard(zeropp::partition(n, next.size()).size(next.rank()), untouched);
            const auto version = zeropp::recover_weights(
                host{}, after, zeropp::survivors_of{zeropp::two_level(std::span<const int>(nodes)), left}, mirror, n,
                shard, {.lost_shards_only = true});
            if (version != (stored ? 7u : 0u)) throw zeropp::precondition_error("another version");
            for (const float x : shard) {
                if (x != untouched) throw zeropp::precondition_error("an element that was not lost");
            }
        });
    };
    for (const std::string& e : recover({0, 1, 0, 1}, true, 1000, true)) {
        CHECK(
            e ==
            "recover_weights: on rank 0, expected a mirror on rank 0 of 2 groups of 2 ranks, given one on rank 0 of 4 "
            "in other places");
    }
    const std::vector<std::string> no_errors(4);
    CHECK(recover({0, 0, 1, 1}, true, 1000, true) == no_errors);
    CHECK(recover({0, 0, 1, 1}, false, 1000, true) == no_errors);
    CHECK(recover({0, 0, 1, 1}, false, 3, false) == no_errors);  // the dead rank's shard is empty
    CHECK(recover({0, 0, 1, 1}, false, 4, false)[0].find("given none, since all are empty") != std::string::npos);
}
