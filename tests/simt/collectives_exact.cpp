#include "simt/collectives.hpp"

#include "simt/cuda_emulation.hpp"

#include "simt/device.hpp"
#include "support/catch.hpp"
#include "support/samples.hpp"

#include <zeropp/codec/cuda.cuh>
#include <zeropp/collective/exact_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/collective/tensor_list.hpp>
#include <zeropp/quantizer/lossless.hpp>
#include <zeropp/topology/partition.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/counting.hpp>

#include <cstddef>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace zeropp_test::simt {
namespace {

/// How many of a thousand elements change in a step: all at first, when nothing is there yet, then too many for a
/// message of changes, and fewer.
constexpr std::size_t densities[] = {1000, 1000, 10, 0, 400, 3};

template <class T>
using tensors_of = std::vector<std::vector<T>>;

/// The tensors of each step.
template <class T>
std::vector<tensors_of<T>> drawn_steps(const std::vector<std::size_t>& sizes, std::uint64_t seed) {
    random_source random(seed);
    std::vector<tensors_of<T>> steps;
    tensors_of<T> now;
    for (const std::size_t n : sizes) now.emplace_back(n);
    for (const std::size_t of_1000 : densities) {
        for (std::vector<T>& tensor : now) {
            for (T& x : tensor) {
                if (random.below(1000) < of_1000) x = T(static_cast<float>(random.below(200)) - 100.0f);
            }
        }
        steps.push_back(now);
    }
    return steps;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Whole tensors on the device, replicas of them, and the slices that a rank brings each step. `List` says whether as a
/// list; otherwise there is one.
template <class T, bool List>
void check_exact_update(const ranks_and_nodes& ranks, const std::vector<std::size_t>& sizes,
                        const make_transport& make) {
    INFO("exact updates of " << sizes.size() << " tensors on " << ranks.name);
    using zeropp::device_space;
    const auto steps = drawn_steps<T>(sizes, sizes.size());
    std::vector<std::string> wrong(static_cast<std::size_t>(ranks.topology.size()));
    on_ranks(ranks, "exact updates", [&](zeropp::thread_transport& world) {
        zeropp::communicator comm(ranks.topology, zeropp::counting(make(world), ranks.topology));
        const auto r = static_cast<std::size_t>(comm.rank());
        const owned_stream stream;
        std::deque<device_array<T>> wholes;
        std::vector<zeropp::list_tensor<T, device_space>> views;
        for (const std::size_t n : sizes) {
            wholes.emplace_back(n, r % 3);
            views.emplace_back(wholes.back().view());
        }
        const auto update = [&](const auto& full, const zeropp::tensors_shape& shape, const auto& shard_of) {
            using replica_type = zeropp::secondary_replica<zeropp::lossless<T>, device_space>;
            const device_array<std::byte> storage(replica_type::storage_bytes(comm.topology(), shape));
            replica_type replica(comm.topology(), comm.rank(), shape, storage.view());
            const device_array<std::byte> scratch(
                exact_update_workspace_bytes(comm.topology(), zeropp::lossless<T>(), shape));
            for (std::size_t step = 0; step != steps.size(); ++step) {
                std::deque<device_array<T>> shards;
                std::vector<zeropp::list_tensor<T, device_space>> own;
                for (const std::vector<T>& tensor : steps[step]) {
                    const zeropp::partition part(tensor.size(), comm.size());
                    const auto first = tensor.begin() + static_cast<std::ptrdiff_t>(part.offset(comm.rank()));
                    shards.emplace_back(
                        std::vector<T>(first, first + static_cast<std::ptrdiff_t>(part.size(comm.rank()))),
                        (r + step) % 3);
                    own.emplace_back(shards.back().view());
                }
                const auto shard = shard_of(own, shards);
                const std::uint64_t before = comm.world().total().bytes_across;
                exact_update(stream.exec(), comm, shard, replica, step + 1, scratch.view());
                const std::uint64_t across = comm.world().total().bytes_across - before;
                const auto others = static_cast<std::uint64_t>(ranks.topology.groups() - 1);
                const std::uint64_t whole = replica.slot_bytes() * others;
                // All, none but those to agree, or for few changes less than a third.
                const std::size_t of_1000 = densities[step];
                if ((of_1000 == 1000 && across < whole) || (of_1000 == 0 && across != 8 * others) ||
                    (of_1000 < 100 && across > 8 * others + whole / 3))
                    wrong[r] += "step " + std::to_string(step) + " sends too few or too many bytes; ";
                secondary_partition_gather(stream.exec(), comm, replica, step + 1, full);
                stream.exec().wait();
                for (std::size_t t = 0; t != sizes.size(); ++t) {
                    if (!same_bits(wholes[t].read(), steps[step][t]))
                        wrong[r] += "step " + std::to_string(step) + ", tensor " + std::to_string(t) + " differs; ";
                    if (!wholes[t].intact() || !shards[t].intact()) wrong[r] += "written outside a tensor; ";
                }
            }
            if (!scratch.intact() || !storage.intact()) wrong[r] += "written outside a workspace; ";
        };
        if constexpr (List) {
            const zeropp::tensor_list<T, device_space> full(comm.topology(), views);
            update(full, full, [](const auto& own, const auto&) { return zeropp::tensor_list<T, device_space>(own); });
        } else {
            update(wholes[0].view(), sizes[0], [](const auto&, const auto& shards) { return shards[0].view(); });
        }
    });
    for (std::size_t r = 0; r != wrong.size(); ++r) {
        INFO("rank " << r);
        REQUIRE(wrong[r] == "");
    }
}

}  // namespace

void check_exact_updates(const make_transport& make) {
    const live_objects before = live();
    for (const ranks_and_nodes& ranks : topologies()) {
        check_exact_update<zeropp::bfloat16, true>(ranks, {3001, 0, 5, 703, 1, 9000, 127}, make);
        check_exact_update<float, false>(ranks, {20011}, make);
    }
    REQUIRE(device_fault() == "");
    REQUIRE(live() == before);
}

}  // namespace zeropp_test::simt
