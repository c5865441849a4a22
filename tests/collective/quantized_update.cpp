/// \file
/// quantized_update and the gather from its replicas: bits, traffic, and versions that nobody misses in silence.

#include "collective/differences.hpp"
#include "collective/drawn_list.hpp"
#include "collective/ranks.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/collective/secondary_replica.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

using namespace collective_test;
using zeropp::host;

namespace {

constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;
using rotated4 = zeropp::hadamard<zeropp::block_integer<4, 64, zeropp::signed_absmax, zeropp::half>>;
using int8_type = zeropp::block_integer<8, 64>;
constexpr int8_type int8;

template <class T, class IntraNode = zeropp::cast_to<T>>
using replica_of = zeropp::secondary_replica<zeropp::cast_to<T>, zeropp::host_space, IntraNode>;

struct moved {
    std::uint64_t intra_node;
    std::uint64_t inter_node;
};
moved moved_between(const zeropp::traffic& before, const zeropp::traffic& after) {
    return {after.intra_node_bytes - before.intra_node_bytes, after.inter_node_bytes - before.inter_node_bytes};
}

/// Whole weights, differences, differences on a queue, and whole weights again, each gathered inside the node. Where
/// `first_groups` is not 0, those alone own slices.
template <class T>
void check(const node_map& map, std::size_t n, int first_groups = 0) {
    INFO(map.name << ", " << n << " elements of " << zeropp::element_traits<T>::name << ", owners " << first_groups);
    const owning owners(map, first_groups);
    const std::size_t ranks = owners.ranks.size();
    const auto size = at(map.ranks());
    constexpr std::size_t steps = 4;
    std::vector<std::vector<float>> weights, expected;
    for (std::size_t step = 0; step != steps; ++step) {
        weights.push_back(walked(step == 0 ? tensor_of(n, format_of<T>, 5) : weights.back(), step));
        const bool whole = step == 0 || step == 3;
        expected.push_back(whole ? widened(narrowed<T>(weights.back()).data(), n)
                                 : updated<T>(weights.back(), expected.back(), ranks, int4));
    }
    std::vector<std::vector<std::vector<float>>> results(steps, std::vector<std::vector<float>>(size));
    std::vector<moved> by_update(size), by_gather(size);
    std::vector<char> intact(size, 1);
    on_ranks(map.ranks(), "updates on " + map.name, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(map.topology(), zeropp::counting(transport, map.topology()));
        const auto r = at(comm.rank());
        const zeropp::host_queue queue;
        over_owners(comm.topology(), first_groups, [&](const auto& over) {
            guarded<std::byte> storage(replica_of<T>::storage_bytes(over, n, comm.rank()));
            replica_of<T> replica(over, comm.rank(), n, storage.view());
            const zeropp::cast_to<T> exact;
            guarded<std::byte> scratch(zeropp::quantized_update_workspace_bytes(over, int4, exact, n));
            guarded<std::byte> gathering(zeropp::secondary_partition_gather_workspace_bytes(over, exact, n));
            for (std::size_t step = 0; step != steps; ++step) {
                const std::vector<float> shard = owners.slice_of(
                    comm.rank(), [&](std::size_t place) { return reference::slice_of(weights[step], ranks, place); });
                if (step == 3) replica.invalidate();
                const zeropp::traffic before = comm.world().total();
                if (step == 2) {
                    zeropp::quantized_update(queue, comm, int4, shard, replica.to(7 + step));
                } else {
                    zeropp::quantized_update(host{}, comm, int4, shard, replica.to(7 + step), {}, scratch.view());
                }
                const zeropp::traffic between = comm.world().total();
                guarded<T> full(n);
                zeropp::secondary_partition_gather(host{}, comm, replica, 7 + step, full.view(), gathering.view());
                const zeropp::traffic after = comm.world().total();
                if (step == 1) {
                    by_update[r] = moved_between(before, between);
                    by_gather[r] = moved_between(between, after);
                }
                results[step][r] = full.values();
                intact[r] = intact[r] && full.intact() && storage.intact() && scratch.intact() && gathering.intact();
            }
        });
    });
    const std::size_t slice = (n + ranks - 1) / ranks;
    const zeropp::two_level nodes = map.topology();
    int largest = 0;
    for (int g = 0; g != nodes.groups(); ++g) largest = std::max(largest, nodes.group_size(g));
    for (std::size_t r = 0; r != size; ++r) {
        INFO("rank " << r);
        REQUIRE(intact[r]);
        for (std::size_t step = 0; step != steps; ++step) {
            INFO("step " << step);
            REQUIRE(difference(results[step][r], expected[step]) == "");
        }
        CHECK(by_update[r].intra_node == 0);
        const bool sends = n != 0 && owners.has(static_cast<int>(r));
        const int rank = static_cast<int>(r);
        const int k = nodes.group_size(nodes.group_of(rank));
        CHECK(by_update[r].inter_node ==
              (sends ? at(columns_of(nodes, rank) * (nodes.groups() - 1)) * zeropp::wire_bytes(int4, slice) : 0));
        CHECK(by_gather[r].inter_node == 0);
        CHECK(by_gather[r].intra_node == (n == 0 ? 0
                                                 : at((k - 1) * ((largest + k - 1) / k) * owners.groups) *
                                                       zeropp::wire_bytes(zeropp::cast_to<T>{}, slice)));
    }
}

/// The slices of all ranks of a tensor, each through `change` by itself.
template <class Change>
std::vector<float> by_slices(const drawn_tensor& t, std::size_t ranks, const std::vector<float>& tensor,
                             Change change) {
    std::vector<float> all;
    for (std::size_t r = 0; r != ranks; ++r) {
        for (const float x : change(t.slice_of(tensor, ranks, r), r)) all.push_back(x);
    }
    return all;
}

/// Whole weights and two differences of a drawn list, updated and gathered in chunks on a pipeline, and then gathered
/// again, as a backward pass does. All groups own slices, or some of the first ones.
template <class T, class Execution, class IntraNode, class Differences = decltype(int4)>
void check_list(int seed, const IntraNode& intra_node, bool all_own = true, const Differences& q = {}) {
    constexpr bool exactly = std::is_same_v<Differences, zeropp::exact_differences>;
    drawn_case drawn(seed);
    const std::vector<drawn_tensor> tensors = drawn_tensors(drawn.random, true);
    int first_groups = all_own ? 0 : 1 + static_cast<int>(drawn.random.below(at(drawn.map.topology().groups())));
    while (!all_own && !can_own(drawn.map.topology(), first_groups)) ++first_groups;
    const owning owners(drawn.map, first_groups);
    const std::size_t ranks = owners.ranks.size();
    const auto size = at(drawn.map.ranks());
    INFO(drawn.text() << ", a list of " << tensors.size() << ", owners " << first_groups);
    constexpr std::size_t steps = 3;
    using values = std::vector<std::vector<float>>;
    std::vector<values> weights(steps), stored(steps), gathered(steps);
    for (std::size_t t = 0; t != tensors.size(); ++t) {
        const drawn_tensor& of = tensors[t];
        for (std::size_t step = 0; step != steps; ++step) {
            weights[step].push_back(step == 0 ? values_of(of, t, 0, format_of<T>) : walked(weights[step - 1][t], step));
            stored[step].push_back(by_slices(of, ranks, weights[step][t], [&](const auto& slice, std::size_t r) {
                if (step == 0 || exactly) return widened(narrowed<T>(slice).data(), slice.size());
                return updated<T>(slice, of.slice_of(stored[step - 1][t], ranks, r), 1, int4);
            }));
            gathered[step].push_back(by_slices(of, ranks, stored[step][t], [&](const auto& slice, std::size_t) {
                const std::vector<float> through = described(intra_node).through(slice);
                return widened(narrowed<T>(through).data(), slice.size());
            }));
        }
    }
    std::vector<std::vector<values>> results(size), again(size);
    std::vector<char> intact(size, 1);
    on_ranks(drawn.map.ranks(), drawn.text(), [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(drawn.map.topology(), transport);
        over_owners(comm.topology(), first_groups, [&](const auto& topology) {
            const auto r = at(comm.rank());
            arrays<T> fulls;
            for (const drawn_tensor& t : tensors) fulls.add(t.memory(ranks), t.division(ranks));
            const zeropp::tensor_list<T> full(topology, fulls.tensors);
            using replica_type = replica_of<T, IntraNode>;
            guarded<std::byte> storage(replica_type::storage_bytes(topology, full));
            replica_type replica(topology, comm.rank(), full, storage.view(), intra_node);
            const zeropp::gather_options options{.chunks = drawn.chunks};
            guarded<std::byte> scratch(
                zeropp::quantized_update_gather_workspace_bytes(topology, q, intra_node, full, options));
            const Execution first, second;
            for (std::size_t step = 0; step != steps; ++step) {
                arrays<float> shards;
                for (std::size_t t = 0; t != tensors.size(); ++t) {
                    const std::vector<float> own = owners.slice_of(comm.rank(), [&](std::size_t place) {
                        return tensors[t].slice_of(weights[step][t], ranks, place);
                    });
                    shards.add(own.size());
                    shards.all.back().fill(own);
                }
                const zeropp::tensor_list<float> shard(shards.tensors);
                zeropp::quantized_update(zeropp::pipeline<Execution>{first, second}, comm, q, shard,
                                         replica.to(step + 1, full), options, scratch.view());
                first.wait();
                results[r].emplace_back();
                again[r].emplace_back();
                for (std::size_t t = 0; t != tensors.size(); ++t) {
                    results[r].back().push_back(take(fulls.all[t], tensors[t], ranks));
                    put(fulls.all[t], tensors[t], ranks, std::vector<float>(tensors[t].n, 77.0f));
                }
                zeropp::secondary_partition_gather(first, comm, replica, step + 1, full);
                for (std::size_t t = 0; t != tensors.size(); ++t) {
                    again[r].back().push_back(take(fulls.all[t], tensors[t], ranks));
                    intact[r] = intact[r] && gaps_intact(fulls.all[t], tensors[t], ranks);
                }
                intact[r] = intact[r] && fulls.intact() && shards.intact() && storage.intact() && scratch.intact();
            }
        });
    });
    for (std::size_t r = 0; r != size; ++r) {
        INFO("rank " << r);
        REQUIRE(intact[r]);
        for (std::size_t step = 0; step != steps; ++step) {
            for (std::size_t t = 0; t != tensors.size(); ++t) {
                INFO("step " << step << ", tensor " << t << " of " << tensors[t].n << " in rows of " << tensors[t].row);
                REQUIRE(difference(results[r][step][t], gathered[step][t]) == "");
                REQUIRE(difference(again[r][step][t], gathered[step][t]) == "");
            }
        }
    }
}

}  // namespace

TEST_CASE("updates: replicas of floats, and of bfloat16 beside weights in float, on every topology") {
    for (std::size_t m = 0; m != node_maps().size(); ++m) {
        for (const std::size_t n : some_counts(128, m, 1)) check<float>(node_maps()[m], n);
        const int groups = node_maps()[m].topology().groups();
        // All groups own slices; or the first ones do, from which they reach the others, which own nothing.
        for (int owners = 0; owners <= groups; ++owners) {
            if (owners != 0 && !can_own(node_maps()[m].topology(), owners)) continue;
            for (const std::size_t n : some_counts(128, m, owners == 0 ? 1 : 2 + at(owners))) {
                check<zeropp::bfloat16>(node_maps()[m], n, owners);
            }
            check<zeropp::bfloat16>(node_maps()[m], 0, owners);
            check<float>(node_maps()[m], at(owners), owners);  // fewer elements than ranks
        }
    }
}

TEST_CASE("updates: drawn lists, updated and gathered in chunks, exact inside the node and in eight bits") {
    for (const bool all_own : {true, false}) {
        for (int seed = 0; seed != 80; ++seed) {
            seed % 2 == 0 ? check_list<float, zeropp::host_queue>(seed, zeropp::cast_to<float>{}, all_own)
                          : check_list<zeropp::bfloat16, host>(seed, int8, all_own);
        }
    }
}

TEST_CASE("updates: exact differences of drawn lists leave the bits of whole weights, whichever groups own them") {
    for (int seed = 0; seed != 80; ++seed) {
        check_list<zeropp::bfloat16, zeropp::host_queue>(seed, zeropp::cast_to<zeropp::bfloat16>{}, seed % 2 == 0,
                                                         zeropp::exact_differences{});
    }
}

TEST_CASE("updates: exact differences send what has changed, and hardly more than whole weights where all has") {
    constexpr std::size_t n = 80000;
    constexpr std::uint64_t whole = n / 4 * 2;  // bytes of one rank's shard
    using T = zeropp::bfloat16;
    std::vector<std::array<std::uint64_t, 3>> sent(4);
    std::vector<char> same(4, 1);
    on_ranks(4, "exact differences", [&](zeropp::thread_transport& transport) {
        const zeropp::two_level nodes(2, 2);
        zeropp::communicator comm(nodes, zeropp::counting(transport, nodes));
        const auto r = at(comm.rank());
        guarded<std::byte> storage(replica_of<T>::storage_bytes(nodes, n));
        replica_of<T> replica(nodes, comm.rank(), n, storage.view());
        std::vector<T> shard(n / 4);
        zeropp_test::random_source random(r);
        for (std::uint64_t step = 0; step != 3; ++step) {
            // Step 1 has the weights of step 0. In step 2 all bits are drawn, NaN and infinities among them.
            for (T& w : shard) {
                const auto bits = static_cast<std::uint16_t>(random.below(65536));
                if (step == 0) w = zeropp::element_traits<T>::from_float(static_cast<float>(bits));
                if (step == 2) w = std::bit_cast<T>(bits);
            }
            const zeropp::traffic before = comm.world().total();
            std::vector<T> full(n);
            zeropp::quantized_update(host{}, comm, zeropp::exact_differences{}, shard, replica.to(step, full));
            sent[r][step] = moved_between(before, comm.world().total()).inter_node;
            same[r] = same[r] && std::memcmp(full.data() + r * shard.size(), shard.data(), whole) == 0;
        }
    });
    REQUIRE(same == std::vector<char>(4, 1));
    for (const auto& of_rank : sent) {
        REQUIRE(of_rank[0] == whole);
        REQUIRE(of_rank[1] < whole / 100);
        REQUIRE(of_rank[2] > whole);
        REQUIRE(of_rank[2] < whole + whole / 100);
    }
}

TEST_CASE("updates: shards of more bytes than a message of exact differences, in chunks of fewer") {
    using T = zeropp::bfloat16;
    const std::size_t n = zeropp::exact_differences::most_bytes / sizeof(T) + 1;
    // No byte of these arrays is touched: scratch is too small.
    const zeropp::host_view<std::byte> storage(reinterpret_cast<std::byte*>(std::uintptr_t{1} << 30),
                                               n * sizeof(T) + 16);
    const zeropp::host_view<T> shard(reinterpret_cast<T*>(std::uintptr_t{1} << 40), n);
    for (const bool updated : {false, true}) {
        for (const int chunks : {1, 2}) {
            const auto errors = errors_on_ranks(1, "a large shard", [&](zeropp::thread_transport& transport) {
                zeropp::communicator comm(zeropp::two_level(1, 1), transport);
                replica_of<T> replica(comm.topology(), 0, n, storage);
                if (updated) replica.stamp(6);
                zeropp::quantized_update(host{}, comm, zeropp::exact_differences{}, shard, replica.to(7),
                                         {.chunks = chunks}, std::vector<std::byte>());
            });
            CHECK(errors[0].starts_with(chunks == 1 ? "quantized_update: expected chunks with messages of at most"
                                                    : "quantized_update: expected a workspace of at least"));
        }
    }
}

TEST_CASE("updates: one that a rank has missed, and what else does not fit, is refused by all ranks that are checked") {
    struct refusal {
        std::string words;
        std::uint64_t version;
        int wrong_rank;
        std::size_t shard;
    };
    for (const refusal& r :
         {refusal{"quantized_update: on rank 1, expected a secondary replica of version 9, given one of version 8", 10,
                  1, 5},
          refusal{"quantized_update: on rank 0, expected a shard of 5 elements of 20, given one of 6", 9, -1, 6}}) {
        const auto errors = errors_on_ranks(4, "updates", [&](zeropp::thread_transport& transport) {
            const zeropp::two_level nodes(2, 2);
            zeropp::communicator comm(nodes, zeropp::checked(transport));
            zeropp::workspace<zeropp::host_space> storage(replica_of<float>::storage_bytes(nodes, 20));
            replica_of<float> replica(nodes, comm.rank(), 20, storage.view());
            const std::vector<float> shard(5), other(r.shard);
            zeropp::quantized_update(host{}, comm, int4, shard, replica.to(8));
            // All but one rank believe that they are a step farther.
            if (r.wrong_rank >= 0 && comm.rank() != r.wrong_rank) replica.stamp(9);
            zeropp::quantized_update(host{}, comm, int4, other, replica.to(r.version));
        });
        for (const std::string& error : errors) CHECK(error == r.words);
    }
}

TEST_CASE("updates: a rank without a version beside others with one is refused, and all without one are updated") {
    std::vector<std::string> errors(4);
    std::vector<std::vector<float>> kept(4);
    on_ranks(4, "an update that has failed on one rank", [&](zeropp::thread_transport& transport) {
        const zeropp::two_level nodes(2, 2);
        zeropp::communicator comm(nodes, zeropp::checked(transport));
        zeropp::workspace<zeropp::host_space> storage(replica_of<float>::storage_bytes(nodes, 20));
        replica_of<float> replica(nodes, comm.rank(), 20, storage.view());
        std::vector<float> shard(5, 1.0f), full(20);
        zeropp::quantized_update(host{}, comm, int4, shard, replica.to(1, full));
        if (comm.rank() == 1) replica.invalidate();
        shard.assign(5, 0.3f);
        errors[at(comm.rank())] = zeropp_test::thrown<zeropp::precondition_error>(
            [&] { zeropp::quantized_update(host{}, comm, int4, shard, replica.to(2, full)); });
        replica.invalidate();
        zeropp::quantized_update(host{}, comm, int4, shard, replica.to(7, full));
        kept[at(comm.rank())] = full;
    });
    for (const std::string& error : errors) {
        CHECK(error == errors[0]);
        CHECK(error.find("whole, from fp32, version 2 on rank 1") != std::string::npos);
        CHECK(error.find("differences, from fp32, version 2 on rank 2") != std::string::npos);
    }
    for (const auto& full : kept) CHECK(full == std::vector<float>(20, 0.3f));
}

TEST_CASE("updates: one step beyond a half's range, or of NaN, does not outlive it") {
    for (const float beyond : {70000.0f, -1e30f, std::numeric_limits<float>::quiet_NaN()}) {
        constexpr std::size_t n = 512;
        std::vector<std::size_t> wrong(4, n);
        std::vector<float> during(4);
        on_ranks(4, "one step beyond a half", [&](zeropp::thread_transport& transport) {
            const zeropp::two_level nodes(2, 2);
            zeropp::communicator comm(nodes, transport);
            zeropp::workspace<zeropp::host_space> storage(replica_of<zeropp::half>::storage_bytes(nodes, n));
            replica_of<zeropp::half> replica(nodes, comm.rank(), n, storage.view());
            std::vector<float> shard(n / 4, 1.0f), full(n);
            for (std::uint64_t version = 1; version != 100; ++version) {
                shard[7] = version == 3 ? beyond : 1.0f;
                zeropp::quantized_update(host{}, comm, int4, shard, replica.to(version, full));
                if (version == 3) during[at(comm.rank())] = full[7];
            }
            wrong[at(comm.rank())] = n - static_cast<std::size_t>(std::count(full.begin(), full.end(), 1.0f));
        });
        for (const float element : during) CHECK_FALSE(std::isfinite(element));
        CHECK(wrong == std::vector<std::size_t>(4, 0));
    }
}

TEST_CASE("updates: a difference that is not finite is NaN in its block alone") {
    constexpr std::size_t n = 512;
    std::vector<std::vector<float>> results(2);
    on_ranks(2, "NaN", [&](zeropp::thread_transport& transport) {
        const zeropp::two_level nodes(2, 1);
        zeropp::communicator comm(nodes, transport);
        zeropp::workspace<zeropp::host_space> storage(replica_of<float>::storage_bytes(nodes, n));
        replica_of<float> replica(nodes, comm.rank(), n, storage.view());
        std::vector<float> shard(n / 2, 1.0f), full(n);
        zeropp::quantized_update(host{}, comm, int4, shard, replica.to(1));
        if (comm.rank() == 1) shard[130] = std::numeric_limits<float>::infinity();
        zeropp::quantized_update(host{}, comm, int4, shard, replica.to(2, full));
        results[at(comm.rank())] = full;
    });
    for (const auto& full : results) {
        for (std::size_t i = 0; i != n; ++i) {
            REQUIRE((std::isnan(full[i]) == (i >= 384) && (i >= 384 || full[i] == 1.0f)));
        }
    }
}

TEST_CASE("updates: after 10,000 steps a replica is as near as after ten, and the same on all nodes", "[accuracy]") {
    constexpr rotated4 q;
    constexpr std::size_t n = 130;
    std::vector<std::vector<float>> last(2);
    std::vector<double> early(2), late(2);
    on_ranks(2, "10,000 steps", [&](zeropp::thread_transport& transport) {
        const zeropp::two_level nodes(2, 1);
        zeropp::communicator comm(nodes, transport);
        const auto r = at(comm.rank());
        zeropp::workspace<zeropp::host_space> storage(replica_of<float>::storage_bytes(nodes, n));
        replica_of<float> replica(nodes, comm.rank(), n, storage.view());
        std::vector<float> weights(n), full(n);
        zeropp::workspace<zeropp::host_space> scratch(
            zeropp::quantized_update_gather_workspace_bytes(nodes, q, zeropp::cast_to<float>{}, n));
        for (std::uint64_t step = 0; step != 10000; ++step) {
            weights = walked(weights, step);
            zeropp::quantized_update(host{}, comm, q, reference::slice_of(weights, 2, r), replica.to(step + 1, full),
                                     {}, scratch.view());
            double& worst = step < 10 ? early[r] : late[r];
            for (std::size_t i = 0; i != n; ++i) {
                worst = std::max(worst, static_cast<double>(std::fabs(weights[i] - full[i])));
            }
        }
        last[r] = full;
    });
    CHECK(difference(last[0], last[1]) == "");
    for (const std::size_t r : {std::size_t{0}, std::size_t{1}}) {
        // A step moves an element by at most 1e-3, and the replica was off by less than what it is off now.
        CHECK(early[r] < 1e-3);
        CHECK(late[r] < 1.5e-3);
    }
}

TEST_CASE("updates: rotated differences of slices that end inside a window, on every topology") {
    using rotated8 = zeropp::hadamard<int8_type>;
    for (const node_map& map : node_maps()) {
        const auto ranks = at(map.ranks());
        // The last slice has fewer whole windows than the others; or is empty.
        for (const std::size_t n : {ranks * 32 - 1, ranks * 128 - 1, ranks * 96 + 33, std::size_t{33}, ranks * 64}) {
            INFO(map.name << ", " << n << " elements");
            const std::vector<float> first = walked(std::vector<float>(n, 1.0f), 1), then = walked(first, 2);
            std::vector<float> off(ranks);
            on_ranks(map.ranks(), "rotated updates on " + map.name, [&](zeropp::thread_transport& transport) {
                zeropp::communicator comm(map.topology(), transport);
                const auto r = at(comm.rank());
                using replica_type = replica_of<float, rotated8>;
                guarded<std::byte> storage(replica_type::storage_bytes(comm.topology(), n));
                replica_type replica(comm.topology(), comm.rank(), n, storage.view());
                zeropp::quantized_update(host{}, comm, rotated4{}, reference::slice_of(first, ranks, r), replica.to(1));
                std::vector<float> full(n);
                for (std::uint64_t version = 2; version != 30; ++version) {
                    zeropp::quantized_update(host{}, comm, rotated4{}, reference::slice_of(then, ranks, r),
                                             replica.to(version, full));
                }
                for (std::size_t i = 0; i != n; ++i) off[r] = std::fmax(off[r], std::fabs(full[i] - then[i]));
                // What is kept has all but arrived; what is gathered is off by 8 bits of a window's sum.
                const std::vector<float> own = reference::slice_of(then, ranks, r);
                for (std::size_t i = 0; i != own.size(); ++i) {
                    const float kept = reinterpret_cast<const float*>(replica.message(comm.group_id()))[i];
                    if (!(std::fabs(kept - own[i]) < 1e-6f)) off[r] = 77;
                }
            });
            for (const float o : off) CHECK(o < 0.05f);
        }
    }
}

namespace {
/// Calls call(comm, replica) on all ranks of `nodes`, with replicas of n floats that were made over `made_for`, for the
/// ranks `off` behind their own. Returns what each rank throws.
template <class Call>
std::vector<std::string> errors_of(const zeropp::two_level& nodes, const zeropp::two_level& made_for, int off,
                                   std::size_t n, Call call) {
    return errors_on_ranks(nodes.size(), "a replica", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(nodes, transport);
        zeropp::workspace<zeropp::host_space> storage(replica_of<float>::storage_bytes(made_for, n));
        replica_of<float> replica(made_for, (comm.rank() + off) % nodes.size(), n, storage.view());
        call(comm, replica);
    });
}
constexpr auto update = [](auto& comm, auto& replica) {
    zeropp::quantized_update(host{}, comm, int4, std::vector<float>(5), replica.to(3));
};
constexpr auto gather = [](auto& comm, auto& replica, std::size_t n, std::uint64_t version) {
    std::vector<float> full(n);
    zeropp::secondary_partition_gather(host{}, comm, replica, version, full);
};
}  // namespace

TEST_CASE("updates: what is gathered has the version that was asked for, or there is an error") {
    for (const bool updated : {false, true}) {
        for (const std::string& error : errors_of({1, 2}, {1, 2}, 0, 10, [&](auto& comm, auto& replica) {
                 if (updated) update(comm, replica);
                 gather(comm, replica, 10, 4);
             })) {
            CHECK(error == "secondary_partition_gather: expected a secondary partition of version 4, given " +
                               std::string(updated ? "one of version 3" : "an empty one"));
        }
    }
}

TEST_CASE("updates: a replica that was made for other ranks, storage that is too small, a tensor of another size") {
    const zeropp::two_level nodes(2, 2), more(4, 2), crossed(std::vector<int>{0, 1, 0, 1});
    CHECK(errors_of(nodes, nodes, 1, 20, update)[0] ==
          "quantized_update: expected a secondary replica for rank 0 of group 0 of 2 groups of 2 ranks, "
          "given one for rank 1 of group 0 of 2 groups of 2 ranks");
    zeropp::workspace<zeropp::host_space> storage(replica_of<float>::storage_bytes(nodes, 20) - 1);
    CHECK_THROWS_AS(replica_of<float>(nodes, 0, 20, storage.view()), zeropp::precondition_error);
    for (const std::string& error : errors_of({1, 2}, {1, 2}, 0, 10, [](auto& comm, auto& replica) {
             update(comm, replica);
             gather(comm, replica, 11, 3);
         })) {
        CHECK(error == "secondary_partition_gather: expected a tensor of 10 elements, given one of 11");
    }
    const auto others = errors_of(nodes, more, 0, 20, [](auto& comm, auto& replica) {
        replica.stamp(1);
        gather(comm, replica, 20, 1);
    });
    for (std::size_t r = 0; r != 4; ++r) {
        const std::string place = "rank " + std::to_string(r % 2) + " of group " + std::to_string(r / 2) + " of ";
        CHECK(others[r] == "secondary_partition_gather: expected a secondary replica for " + place +
                               "2 groups of 2 ranks, given one for " + place + "4 groups of 2 ranks");
    }
    CHECK(errors_of(nodes, crossed, 0, 20, update)[0] ==
          "quantized_update: expected a secondary replica for rank 0 of group 0 of 2 groups of 2 ranks, "
          "given one for rank 0 of group 0 of 2 groups of 2 ranks in other places");
    for (const std::string& error : errors_of({1, 2}, {1, 2}, 0, 10, [](auto& comm, auto& replica) {
             const zeropp::host_view<float> kept(reinterpret_cast<float*>(replica.message(0)), 5);
             zeropp::quantized_update(host{}, comm, int4, kept, replica.to(1));
         })) {
        CHECK(error == "quantized_update: expected a shard apart from the replica, given one that overlaps it");
    }
}
