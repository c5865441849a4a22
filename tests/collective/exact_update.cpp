/// \file
/// exact_update: replicas that are the ranks' shards to the bit, whatever has changed, and what crosses for it.

#include "collective/drawn_list.hpp"
#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/exact_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/lossless.hpp>
#include <zeropp/topology/slice_owners.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

using namespace collective_test;
using zeropp::host;

namespace {

template <class T>
using replica_of = zeropp::secondary_replica<zeropp::lossless<T>, zeropp::host_space>;

template <class T>
std::string bits(const std::vector<T>& elements) {
    std::string all(elements.size() * sizeof(T), '\0');
    if (!all.empty()) std::memcpy(all.data(), elements.data(), all.size());
    return all;
}

/// How many of a tensor's elements change in a step, in thousandths.
constexpr std::size_t densities[] = {1000, 0, 1, 20, 300, 600, 1000, 5};

/// The weights of the next step: some others, of them some that equal as numbers but not as bits.
template <class T>
std::vector<T> changed(std::vector<T> elements, std::size_t step, random_source& random) {
    for (T& x : elements) {
        if (random.below(1000) >= densities[step]) continue;
        switch (random.below(8)) {
        case 0:
            x = T(0.0f);
            break;
        case 1:
            x = T(-0.0f);
            break;
        case 2:
            x = T(std::numeric_limits<float>::quiet_NaN());
            break;
        default:
            x = T(static_cast<float>(random.below(2000)) - 1000.0f);
        }
    }
    return elements;
}

/// What a rank has of a drawn list: its slices in T.
template <class T>
std::vector<T> own_slice(const drawn_tensor& t, const std::vector<T>& tensor, std::size_t ranks, std::size_t r) {
    const auto first = tensor.begin() + static_cast<std::ptrdiff_t>(t.begin(ranks, r));
    return {first, first + static_cast<std::ptrdiff_t>(t.size(ranks, r))};
}

/// All groups own slices, or some of the first ones.
template <class T, class Execution>
void check(int seed, bool all_own = true) {
    drawn_case drawn(seed);
    const std::vector<drawn_tensor> tensors = drawn_tensors(drawn.random, true);
    const auto groups = static_cast<std::size_t>(drawn.map.topology().groups());
    const int first_groups = all_own ? 0 : 1 + static_cast<int>(drawn.random.below(groups));
    const owning owners(drawn.map, first_groups);
    const std::size_t ranks = owners.ranks.size();
    const auto size = at(drawn.map.ranks());
    INFO(drawn.text() << ", a list of " << tensors.size() << ", owners " << first_groups);
    constexpr std::size_t steps = std::size(densities);
    std::vector<std::vector<std::vector<T>>> weights(steps);
    for (std::size_t step = 0; step != steps; ++step) {
        for (std::size_t t = 0; t != tensors.size(); ++t) {
            const auto before =
                step == 0 ? narrowed<T>(values_of(tensors[t], t, 0, format_of<T>)) : weights[step - 1][t];
            weights[step].push_back(changed(before, step, drawn.random));
        }
    }
    std::size_t elements = 0;
    for (const drawn_tensor& t : tensors) elements += t.n;
    const auto shard_of = [&](std::size_t step, std::size_t t, int rank) {
        return owners.slice_of(
            rank, [&](std::size_t place) { return own_slice(tensors[t], weights[step][t], ranks, place); });
    };
    // What a rank changes from one step to the next.
    const auto changes_of = [&](std::size_t step, int rank) {
        std::size_t changes = 0;
        for (std::size_t t = 0; t != tensors.size(); ++t) {
            const auto now = shard_of(step, t, rank);
            const auto before = shard_of(step - 1, t, rank);
            for (std::size_t i = 0; i != now.size(); ++i) {
                changes += std::memcmp(&now[i], &before[i], sizeof(T)) != 0 ? 1u : 0u;
            }
        }
        return changes;
    };
    std::vector<std::string> wrong(size);
    std::vector<std::vector<std::uint64_t>> across(size, std::vector<std::uint64_t>(steps));
    std::vector<std::size_t> slot(size);
    on_ranks(drawn.map.ranks(), drawn.text(), [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(drawn.map.topology(), zeropp::counting(transport, drawn.map.topology()));
        over_owners(comm.topology(), first_groups, [&](const auto& topology) {
            const auto r = at(comm.rank());
            arrays<T> fulls;
            for (const drawn_tensor& t : tensors) fulls.add(t.memory(ranks), t.division(ranks));
            const zeropp::tensor_list<T> full(topology, fulls.tensors);
            guarded<std::byte> storage(replica_of<T>::storage_bytes(topology, full));
            replica_of<T> replica(topology, comm.rank(), full, storage.view());
            slot[r] = replica.slot_bytes();
            guarded<std::byte> scratch(zeropp::exact_update_workspace_bytes(topology, zeropp::lossless<T>{}, full));
            const Execution exec;
            for (std::size_t step = 0; step != steps; ++step) {
                arrays<T> shards;
                for (std::size_t t = 0; t != tensors.size(); ++t) {
                    const auto own = shard_of(step, t, comm.rank());
                    shards.add(own.size());
                    shards.all.back().fill(own);
                }
                const zeropp::tensor_list<T> shard(shards.tensors);
                const std::uint64_t before = comm.world().total().bytes_across;
                zeropp::exact_update(exec, comm, shard, replica, step + 1, scratch.view());
                exec.wait();
                across[r][step] = comm.world().total().bytes_across - before;
                zeropp::secondary_partition_gather(exec, comm, replica, step + 1, full);
                for (std::size_t t = 0; t != tensors.size(); ++t) {
                    std::vector<T> given(tensors[t].n);
                    for (std::size_t i = 0; i != given.size(); ++i) {
                        given[i] = fulls.all[t].data()[tensors[t].place(ranks, i)];
                    }
                    if (bits(given) != bits(weights[step][t])) {
                        wrong[r] += "step " + std::to_string(step) + ", tensor " + std::to_string(t) + " differs; ";
                    }
                }
                if (!fulls.intact() || !shards.intact() || !storage.intact() || !scratch.intact())
                    wrong[r] += "written outside";
            }
        });
    });
    for (std::size_t r = 0; r != size; ++r) {
        INFO("rank " << r);
        REQUIRE(wrong[r] == "");
        for (std::size_t step = 0; step != steps; ++step) {
            INFO("step " << step);
            if (elements == 0 || groups == 1 || !owners.has(static_cast<int>(r))) {
                REQUIRE(across[r][step] == 0);
                continue;
            }
            std::size_t most = 0;
            if (step != 0) {
                // Those of this rank's index on all nodes that own slices.
                const auto& topology = drawn.map.topology();
                for (int g = 0; g != owners.groups; ++g) {
                    most =
                        std::max(most, changes_of(step, topology.rank_of(g, topology.index_of(static_cast<int>(r)))));
                }
            }
            const std::uint64_t agreed = step == 0 ? 0 : 8 * (groups - 1);
            const std::uint64_t dense = (groups - 1) * slot[r];
            const std::uint64_t sent = across[r][step] - agreed;
            if (step == 0) {
                REQUIRE(sent == dense);
            } else if (most == 0) {
                REQUIRE(sent == 0);
            } else {
                // Two bytes for every group of 256, one more for each change than the element, and 16 to round each up.
                std::size_t counts = 0;
                for (const drawn_tensor& t : tensors) counts += 2 * ((t.slice(ranks) + 255) / 256 + 1);
                const std::size_t at_most = counts + 48 + most * (sizeof(T) + 1);
                REQUIRE(sent <= dense);
                REQUIRE(sent <= (groups - 1) * at_most);
                REQUIRE(sent >= std::min(dense, (groups - 1) * most * (sizeof(T) + 1)));
            }
        }
    }
}

}  // namespace

TEST_CASE("exact updates: drawn lists, from no change to all, to the bit") {
    for (int seed = 0; seed != 40; ++seed) {
        seed % 2 == 0 ? check<zeropp::bfloat16, host>(seed) : check<float, zeropp::host_queue>(seed);
    }
}

TEST_CASE("exact updates: drawn lists that the first groups own, to the bit on all") {
    for (int seed = 0; seed != 40; ++seed) {
        seed % 2 == 0 ? check<zeropp::bfloat16, zeropp::host_queue>(seed, false) : check<float, host>(seed, false);
    }
}

TEST_CASE("exact updates: one tensor, few changes in many elements") {
    constexpr std::size_t n = 400'000;
    std::vector<std::uint64_t> across(4);
    std::vector<std::string> wrong(4);
    on_ranks(4, "one tensor", [&](zeropp::thread_transport& transport) {
        const zeropp::two_level nodes(2, 2);
        zeropp::communicator comm(nodes, zeropp::counting(transport, nodes));
        const auto r = at(comm.rank());
        guarded<std::byte> storage(replica_of<zeropp::half>::storage_bytes(nodes, n));
        replica_of<zeropp::half> replica(nodes, comm.rank(), n, storage.view());
        std::vector<zeropp::half> shard(n / 4, zeropp::half(1.0f));
        zeropp::exact_update(host{}, comm, shard, replica, 1);
        // A thousandth of them, at other places on each rank.
        for (std::size_t i = r; i < shard.size(); i += 1000) shard[i] = zeropp::half(static_cast<float>(i % 100 + 2));
        const std::uint64_t before = comm.world().total().bytes_across;
        zeropp::exact_update(host{}, comm, shard, replica, 2);
        across[r] = comm.world().total().bytes_across - before;
        std::vector<zeropp::half> full(n);
        zeropp::secondary_partition_gather(host{}, comm, replica, 2, full);
        for (std::size_t i = 0; i != n; ++i) {
            const std::size_t of = i / (n / 4), place = i % (n / 4);
            const float expected = place % 1000 == of ? static_cast<float>(place % 100 + 2) : 1.0f;
            if (static_cast<float>(full[i]) != expected) wrong[r] = "element " + std::to_string(i);
        }
    });
    for (std::size_t r = 0; r != 4; ++r) {
        CHECK(wrong[r] == "");
        // 391 groups, 782 bytes, in 784; 100 elements in 208, their places in 112; and 8 to agree.
        CHECK(across[r] == 784 + 208 + 112 + 8);
    }
}

TEST_CASE("exact updates: workspaces of lists that begin with tensors without elements") {
    // 16384 groups of 256, in as many runs: a number for each, one for all of them, and one to agree.
    constexpr std::size_t n = 16384 * 256;
    std::vector<zeropp::bfloat16> elements(n);
    const std::vector<zeropp::list_tensor<zeropp::bfloat16, zeropp::host_space>> tensors{
        {std::span(elements).first(0)}, {std::span(elements).first(0)}, {std::span(elements)}};
    const zeropp::two_level topology(1, 1);
    const zeropp::tensor_list<zeropp::bfloat16> list(topology, tensors);
    CHECK(zeropp::exact_update_workspace_bytes(topology, zeropp::lossless<zeropp::bfloat16>(), list) ==
          2 * n + 8 * (16384 + 2));
}

namespace {

/// Says of every number that ranks agree on that it is one for which the size of a message wraps around.
class lying_transport : public zeropp::adaptor<zeropp::thread_transport> {
public:
    explicit lying_transport(zeropp::thread_transport inner) : adaptor(std::move(inner)) {}

    template <zeropp::execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        inner().all_gather(exec, send, recv, bytes);
        lie(recv, bytes);
    }
    template <zeropp::execution E>
    void broadcast(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes, int roots) {
        inner().broadcast(exec, send, recv, bytes, roots);
        lie(recv, bytes);
    }
    lying_transport split(std::span<const int> members) { return lying_transport(inner().split(members)); }

private:
    static void lie(std::byte* recv, std::size_t bytes) {
        constexpr std::uint64_t number = 0x5555555555555556u;
        if (bytes == sizeof number) std::memcpy(recv, &number, sizeof number);
    }
};

}  // namespace

TEST_CASE("exact updates: whatever number of changes arrives, nothing is written outside") {
    // Both groups own slices, or one alone does, whose numbers arrive by broadcast.
    for (const int owning_groups : {2, 1}) {
        std::vector<std::string> wrong(2);
        on_ranks(2, "lies", [&](zeropp::thread_transport& transport) {
            const zeropp::two_level topology(2, 1);
            const zeropp::slice_owners owners(topology, owning_groups);
            zeropp::communicator comm(topology, lying_transport(transport));
            constexpr std::size_t n = 2000;
            guarded<std::byte> storage(replica_of<zeropp::half>::storage_bytes(owners, n));
            replica_of<zeropp::half> replica(owners, comm.rank(), n, storage.view());
            guarded<std::byte> scratch(
                zeropp::exact_update_workspace_bytes(owners, zeropp::lossless<zeropp::half>(), n));
            const std::size_t own = comm.rank() < owning_groups ? n / at(owning_groups) : 0;
            for (std::uint64_t version = 1; version != 3; ++version) {
                const std::vector<zeropp::half> shard(own, zeropp::half(static_cast<float>(version)));
                zeropp::exact_update(host{}, comm, shard, replica, version, scratch.view());
            }
            std::vector<zeropp::half> full(n);
            zeropp::secondary_partition_gather(host{}, comm, replica, 2, full);
            for (const zeropp::half x : full) {
                if (static_cast<float>(x) != 2.0f) wrong[at(comm.rank())] = "other elements; ";
            }
            if (!storage.intact() || !scratch.intact()) wrong[at(comm.rank())] += "written outside; ";
        });
        INFO(owning_groups << " of 2 groups own slices");
        for (const std::string& text : wrong) CHECK(text == "");
    }
}

TEST_CASE("exact updates: on more nodes than one wait tells the sizes of") {
    constexpr int nodes = 67;
    std::vector<std::string> wrong(nodes);
    on_ranks(nodes, "many nodes", [&](zeropp::thread_transport& transport) {
        const zeropp::two_level topology(nodes, 1);
        zeropp::communicator comm(topology, transport);
        constexpr std::size_t own = 1000;
        guarded<std::byte> storage(replica_of<float>::storage_bytes(topology, nodes * own));
        replica_of<float> replica(topology, comm.rank(), nodes * own, storage.view());
        std::vector<float> shard(own, 1.0f);
        zeropp::exact_update(host{}, comm, shard, replica, 1);
        // The last has most changes, and more than the others' messages would have room for.
        const std::size_t changes = comm.rank() == nodes - 1 ? 300 : 3;
        std::fill_n(shard.begin(), changes, 2.0f);
        zeropp::exact_update(host{}, comm, shard, replica, 2);
        std::vector<float> full(nodes * own);
        zeropp::secondary_partition_gather(host{}, comm, replica, 2, full);
        for (std::size_t i = 0; i != full.size(); ++i) {
            const float expected = i % own < (i / own == nodes - 1 ? 300u : 3u) ? 2.0f : 1.0f;
            if (full[i] != expected) wrong[at(comm.rank())] = "element " + std::to_string(i);
        }
    });
    for (const std::string& text : wrong) CHECK(text == "");
}

TEST_CASE("exact updates: one that a rank has missed is refused by all ranks that are checked") {
    const auto errors = errors_on_ranks(4, "a missed one", [&](zeropp::thread_transport& transport) {
        const zeropp::two_level nodes(2, 2);
        zeropp::communicator comm(nodes, zeropp::checked(transport));
        zeropp::workspace<zeropp::host_space> storage(replica_of<float>::storage_bytes(nodes, 20));
        replica_of<float> replica(nodes, comm.rank(), 20, storage.view());
        const std::vector<float> shard(5);
        zeropp::exact_update(host{}, comm, shard, replica, 8);
        if (comm.rank() != 1) replica.stamp(9);
        zeropp::exact_update(host{}, comm, shard, replica, 10);
    });
    for (const std::string& error : errors) {
        CHECK(error == "exact_update: on rank 1, expected a secondary replica of version 9, given one of version 8");
    }
}
