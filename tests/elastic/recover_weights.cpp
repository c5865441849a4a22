/// \file
/// recover_weights and redistribute_shards: after any loss, the bits that the surviving nodes hold, or the elements
/// that none holds.

#include "collective/loss.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/elastic.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/checked.hpp>

#include <chrono>

using namespace collective_test;
using namespace std::chrono_literals;
using zeropp::bfloat16;
using zeropp::host;

namespace {

template <class Q>
using partition_of = zeropp::secondary_partition<Q, zeropp::host_space>;
using replica_type = zeropp::secondary_replica<zeropp::cast_to<bfloat16>, zeropp::host_space>;
using int8_type = zeropp::block_integer<8, 64>;

/// Stores weights on all ranks, gathers them in each group, and recovers them on the survivors: each element has the
/// bits of a surviving holder, or is named as lost on all survivors. Then old shards overwrite those of living owners.
template <class T, bool List, class Secondary>
void check(const loss& c) {
    constexpr bool is_replica = std::is_same_v<Secondary, replica_type>;
    INFO(c.text());
    const auto ranks = at(c.map.ranks());
    const zeropp::two_level before = c.map.topology();
    const std::vector<int> survivors = c.survivors();
    std::vector<numbers> gathered(ranks), recovered(ranks), redistributed(ranks);
    std::vector<std::string> errors(ranks);
    std::vector<char> intact(ranks);
    const auto weights = [&](std::size_t t) { return tensor_of(c.tensors[t].n, format_of<T>, t + 5); };
    on_ranks(c.map.ranks(), c.text(), [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(before, transport);
        const auto r = at(comm.rank());
        tensor_memory<T, List> whole_memory, again_memory, old_memory;
        for (std::size_t t = 0; t != c.tensors.size(); ++t) {
            whole_memory.add(weights(t), c.tensors[t].row);
            again_memory.add(std::vector<float>(c.tensors[t].n), c.tensors[t].row);
            old_memory.add(c.tensors[t].slice_of(weights(t), ranks, r), 1);
        }
        const auto whole = whole_memory.operand(before);
        const auto again = again_memory.operand(before);
        const auto old = old_memory.operand();
        const auto& shape = shape_of<List>(whole, c);
        zeropp::workspace<zeropp::host_space> storage(0);
        const auto secondary = [&] {
            if constexpr (is_replica) {
                storage = zeropp::workspace<zeropp::host_space>(Secondary::storage_bytes(before, shape, comm.rank()));
                Secondary replica(before, comm.rank(), shape, storage.view());
                zeropp::quantized_update(host{}, comm, int8_type{}, old, replica.to(7));
                return replica;
            } else {
                const int k = comm.group_size();
                storage = zeropp::workspace<zeropp::host_space>(Secondary::storage_bytes({}, shape, k));
                Secondary partition({}, shape, k, comm.index(), storage.view());
                partition.store(host{}, whole, 7);
                return partition;
            }
        }();
        zeropp::secondary_partition_gather(host{}, comm, secondary, 7, again);
        gathered[r] = again_memory.values();
        if (c.has(comm.rank())) {
            transport.split(std::vector<int>{comm.rank()});
            return;
        }
        zeropp::communicator next(before.shrink(survivors), transport.split(survivors));
        tensor_memory<T, List> shard_memory = shards_to_fill<T, List>(c, next.rank());
        const auto shard = shard_memory.operand();
        const zeropp::survivors_of from{before, survivors};
        const zeropp::host_queue queue;
        try {
            if (zeropp::recover_weights(queue, next, from, secondary, shape, shard, c.options) != 7) {
                errors[r] = "another version";
            }
        } catch (const zeropp::no_copy_error& e) {
            errors[r] = e.what();
        }
        recovered[r] = shard_memory.values();
        zeropp::redistribute_shards(host{}, next, from, shape, old, shard, c.options);
        redistributed[r] = shard_memory.values();
        intact[r] = shard_memory.intact();
    });

    std::string lost;
    for (std::size_t t = 0; t != c.tensors.size() && lost.empty(); ++t) {
        for (std::size_t e = 0; e != c.tensors[t].n && lost.empty(); ++e) {
            bool held = c.options.lost_shards_only && !c.owner_is_dead(c.tensors[t], e);
            for (int g = 0; g != before.groups(); ++g) held = held || !c.has(c.holder(is_replica, c.tensors[t], e, g));
            if (!held) lost = "none of version 7 for elements " + std::to_string(e) + " to ";
        }
    }
    for (std::size_t s = 0; s != survivors.size(); ++s) {
        const auto r = at(survivors[s]);
        INFO("survivor " << r);
        REQUIRE(intact[r]);
        REQUIRE(errors[r] == errors[at(survivors[0])]);
        REQUIRE((lost.empty() ? errors[r].empty() : errors[r].find(lost) != std::string::npos));
        for (std::size_t t = 0; t != c.tensors.size(); ++t) {
            const drawn_tensor& tensor = c.tensors[t];
            const std::size_t begin = tensor.begin(survivors.size(), s);
            const std::vector<float> stored = weights(t);
            std::vector<float> expected, expected_at_last;
            for (std::size_t i = 0; i != tensor.size(survivors.size(), s); ++i) {
                const std::size_t e = begin + i;
                const bool of_dead = c.owner_is_dead(tensor, e);
                expected.push_back(untouched);
                // Groups of other sizes have other blocks, so a quantizer's copies may differ between groups.
                for (int g = 0; g != before.groups() && lost.empty(); ++g) {
                    const int holder = c.holder(is_replica, tensor, e, g);
                    if (c.has(holder) || (c.options.lost_shards_only && !of_dead)) continue;
                    const float copy = gathered[at(holder)][t][e];
                    if (expected.back() == untouched || copy == recovered[r][t][i]) expected.back() = copy;
                }
                expected_at_last.push_back(of_dead ? expected.back() : stored[e]);
            }
            REQUIRE(difference(recovered[r][t], expected) == "");
            REQUIRE(difference(redistributed[r][t], expected_at_last) == "");
        }
    }
}

}  // namespace

TEST_CASE("recover_weights: any loss on any nodes, of arrays and lists, of elements and blocks") {
    for_each_loss(node_maps(), [](std::size_t turn, const loss& array, const loss& list) {
        if (turn % 2 == 0) {
            check<float, false, partition_of<zeropp::cast_to<float>>>(array);
            check<float, true, partition_of<int8_type>>(list);
        } else {
            check<bfloat16, false, partition_of<int8_type>>(array);
            check<float, true, replica_type>(list);
        }
    });
}

TEST_CASE("recover_weights: the newest version that survivors hold whole, after shrink") {
    // Node 0 has stored version 8, others 7; or one rank of node 0 has not stored 8 either; or nothing is stored.
    for (const int with_8 : {2, 1, 0, -1}) {
        INFO(with_8 << " ranks with version 8");
        std::vector<std::string> texts(6);
        zeropp::run_on_threads(
            6,
            [&](zeropp::thread_transport transport) {
                zeropp::communicator comm(zeropp::two_level::of_nodes({2, 3, 1}), transport);
                const int k = comm.group_size();
                using secondary_type = partition_of<zeropp::cast_to<float>>;
                zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes({}, 10, k));
                secondary_type secondary({}, 10, k, comm.index(), storage.view());
                if (with_8 >= 0) secondary.store(host{}, std::vector<float>(10, 7.0f), 7);
                if (comm.rank() < with_8) secondary.store(host{}, std::vector<float>(10, 8.0f), 8);
                if (comm.rank() == 4) return;
                auto [next, survivors] = comm.shrink();
                std::vector<float> shard(zeropp::partition(10, 5).size(next.rank()));
                std::string& text = texts[at(comm.rank())];
                try {
                    const auto version =
                        zeropp::recover_weights(host{}, next, zeropp::survivors_of{comm.topology(), survivors},
                                                secondary, std::size_t{10}, shard);
                    text = "version " + std::to_string(version);
                    for (const float x : shard) text += x == static_cast<float>(version) ? "" : ", wrong";
                } catch (const zeropp::no_copy_error& e) {
                    text = e.what();
                }
            },
            {.timeout = 2s});
        const std::string none =
            "recover_weights: expected each element in the secondary partition, replica or mirror of a "
            "surviving rank, given none";
        const std::string expected = with_8 == 2    ? "version 8"
                                     : with_8 == -1 ? none + ", since all are empty"
                                                    : "version 7";
        for (const std::size_t r : {0u, 1u, 2u, 3u, 5u}) REQUIRE(texts[r] == expected);
    }
}

TEST_CASE("recover_weights: wrong survivors, sizes, partitions and overlaps are errors on all ranks") {
    using secondary_type = partition_of<zeropp::cast_to<float>>;
    struct call {
        std::string wrong;
        std::vector<int> survivors{0, 1, 2};
        std::size_t elements = 100;
        std::size_t shard = 34;
        int index_off = 0;
        bool overlaps = false;
    };
    const std::vector<call> calls{
        {.wrong = "expected 3 survivors in increasing order among 4 ranks before the failure, given 0, 2, 1",
         .survivors = {0, 2, 1}},
        {.wrong = "given 0, 1, 1", .survivors = {0, 1, 1}},
        {.wrong = "given 0, 1, 4", .survivors = {0, 1, 4}},
        {.wrong = "given 0, 1", .survivors = {0, 1}},
        {.wrong = "expected a tensor of 100 elements, given one of 99", .elements = 99},
        {.wrong = "expected a shard of 34 elements of 100, given one of 35", .shard = 35},
        {.wrong = "expected a secondary partition for rank", .index_off = 1},
        {.wrong = "expected shards apart from the secondary weights", .overlaps = true}};
    for (const call& c : calls) {
        const auto errors = errors_on_ranks(4, "recovery that throws", [&](zeropp::thread_transport& transport) {
            if (transport.rank() == 3) {
                transport.split(std::vector<int>{3});
                return;
            }
            const zeropp::two_level before(2, 2);
            const int rank = transport.rank();
            zeropp::communicator next(before.shrink(std::vector<int>{0, 1, 2}),
                                      zeropp::checked(transport.split(std::vector<int>{0, 1, 2})));
            zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes({}, 100, 2));
            secondary_type secondary({}, 100, 2, (before.index_of(rank) + c.index_off) % 2, storage.view());
            secondary.store(host{}, std::vector<float>(100, 1.0f), 1);
            std::vector<float> own(c.shard - (rank == 2 ? 2 : 0));
            const zeropp::host_view<float> shard =
                c.overlaps ? zeropp::host_view<float>(reinterpret_cast<float*>(storage.view().data()), own.size())
                           : zeropp::host_view<float>(own.data(), own.size());
            zeropp::recover_weights(host{}, next, zeropp::survivors_of{before, c.survivors}, secondary, c.elements,
                                    shard);
        });
        for (std::size_t r = 0; r != 3; ++r) {
            INFO(errors[r]);
            REQUIRE(errors[r].find("recover_weights: ") == 0);
            REQUIRE(errors[r].find(c.wrong) != std::string::npos);
        }
    }
}

TEST_CASE("redistribute_shards: an overlap of old and new shards is an error") {
    const auto errors = errors_on_ranks(2, "an overlap", [](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::flat(2), transport);
        std::vector<float> shard(50);
        zeropp::redistribute_shards(host{}, comm, zeropp::survivors_of{comm.topology(), {0, 1}}, std::size_t{100},
                                    shard, shard);
    });
    for (const std::string& e : errors) {
        REQUIRE(e == "redistribute_shards: expected new shards apart from old ones, given an overlap");
    }
}

TEST_CASE("redistribute_shards: lists that differ between ranks are an error on all, if ranks compare") {
    for (const bool differ : {false, true}) {
        const auto errors = errors_on_ranks(2, "lists that differ", [&](zeropp::thread_transport& transport) {
            const zeropp::flat ranks(2);
            zeropp::communicator comm(ranks, zeropp::checked(transport));
            std::vector<float> a(96), b(32), old_a(48), old_b(16), new_a(48), new_b(16);
            const bool swapped = differ && comm.rank() == 1;
            using list = zeropp::tensor_list<float>;
            const auto listed = [&](std::vector<float>& of_a, std::vector<float>& of_b) {
                return swapped ? list({of_b, of_a}) : list({of_a, of_b});
            };
            const list tensors = swapped ? list(ranks, {b, a}) : list(ranks, {a, b});
            zeropp::redistribute_shards(host{}, comm, zeropp::survivors_of{ranks, {0, 1}}, tensors,
                                        listed(old_a, old_b), listed(new_a, new_b));
        });
        for (const std::string& e : errors) {
            CHECK(e.starts_with(differ ? "checked: expected the same call on every rank, given" : ""));
            CHECK(e.empty() != differ);
        }
    }
}
