#include "simt/collectives.hpp"

#include "gpu/capture.hpp"
#include "kernels/codec_against_host.hpp"
#include "simt/device.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <type_traits>
#include <vector>

namespace zeropp_test::simt {
namespace {

/// What the ranks hold when a collective has ended.
template <class T>
using of_ranks = std::vector<std::vector<T>>;

/// The part of a tensor that a rank holds.
template <class T>
std::vector<T> shard_of(const std::vector<T>& full, const zeropp::partition& part, int rank) {
    const auto first = full.begin() + static_cast<std::ptrdiff_t>(part.offset(rank));
    return {first, first + static_cast<std::ptrdiff_t>(part.size(rank))};
}

/// Runs work(comm) on a thread for each rank, over what `make` makes of the threads' transport.
template <class Make, class Work>
void with_communicators(const ranks_and_nodes& ranks, Make make, Work work) {
    on_ranks(ranks, "a collective", [&](zeropp::thread_transport& world) {
        zeropp::communicator comm(ranks.topology, make(world));
        work(comm);
    });
}

zeropp::thread_transport on_host(const zeropp::thread_transport& world) { return world; }

/// quantized_all_gather of a tensor of n elements, then secondary_partition_gather of what it has stored on the way.
template <class T, zeropp::quantizer Q>
void check_all_gather(const Q& q, const ranks_and_nodes& ranks, std::size_t n, const make_transport& make) {
    INFO(zeropp::short_text(q.name()).str() << " on " << ranks.name << ", " << n << " elements");
    const auto all = tensor<T>(n, 3, n);
    const auto size = static_cast<std::size_t>(ranks.topology.size());
    const zeropp::partition part(n, ranks.topology.size());
    using zeropp::secondary_partition;
    const auto stored_bytes = [&](const auto& comm) {
        return secondary_partition<Q, zeropp::host_space>::storage_bytes(q, n, comm.group_size());
    };

    of_ranks<T> expected(size);
    of_ranks<T> expected_from_secondary(size);
    with_communicators(ranks, on_host, [&](auto& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        zeropp::workspace<zeropp::host_space> storage(stored_bytes(comm));
        secondary_partition<Q, zeropp::host_space> secondary(q, n, comm.group_size(), comm.index(), storage.view());
        expected[r].resize(n);
        expected_from_secondary[r].resize(n);
        zeropp::workspace<zeropp::host_space> scratch(quantized_all_gather_workspace_bytes(comm.topology(), q, n));
        quantized_all_gather(zeropp::host{}, comm, q, shard_of(all, part, comm.rank()), expected[r], {},
                             scratch.view());
        secondary.store(zeropp::host{}, expected[r], 7);
        secondary_partition_gather(zeropp::host{}, comm, secondary, 7, expected_from_secondary[r]);
    });

    of_ranks<T> given(size);
    of_ranks<T> given_in_place(size);
    of_ranks<T> given_from_secondary(size);
    std::vector<char> intact(size);
    with_communicators(ranks, make, [&](auto& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        const owned_stream stream, second, third;
        const cuda_stream& exec = stream.exec();
        const zeropp::gather_options in_chunks{.chunks = 3};
        const device_array<T> shard(shard_of(all, part, comm.rank()), r % 2);
        const device_array<T> full(n, r % 3);
        const device_array<T> in_place(n);
        const device_array<T> from_secondary(n);
        const device_array<std::byte> scratch(
            std::max(quantized_all_gather_workspace_bytes(comm.topology(), q, n),
                     quantized_all_gather_workspace_bytes(comm.topology(), q, n, in_chunks)));
        const device_array<std::byte> storage(stored_bytes(comm));
        const device_array<std::byte> more(secondary_partition_gather_workspace_bytes(comm.group_size(), q, n));
        secondary_partition<Q, zeropp::device_space> secondary(q, n, comm.group_size(), comm.index(), storage.view());

        quantized_all_gather(exec, comm, q, shard.view(), full.view(), {}, scratch.view());
        secondary.store(exec, full.view(), 7);
        secondary_partition_gather(exec, comm, secondary, 7, from_secondary.view(), more.view());
        // The same scratch at once, the shard inside the tensor, and chunks on three streams.
        exec.copy(in_place.data() + part.offset(comm.rank()), shard.data(), part.size(comm.rank()) * sizeof(T));
        quantized_all_gather(zeropp::pipeline<cuda_stream>{exec, second.exec(), third.exec()}, comm, q,
                             in_place.view().subview(part.offset(comm.rank()), part.size(comm.rank())), in_place.view(),
                             in_chunks, scratch.view());
        // Work runs when somebody waits for it: on some ranks, decoding as early as it may.
        if (r % 2 == 0) third.exec().wait();
        exec.wait();
        given[r] = full.read();
        given_in_place[r] = in_place.read();
        given_from_secondary[r] = from_secondary.read();
        intact[r] = full.intact() && in_place.intact() && from_secondary.intact() && scratch.intact() &&
                    storage.intact() && more.intact() && shard.intact();
    });
    for (std::size_t r = 0; r != size; ++r) {
        INFO("rank " << r);
        REQUIRE(difference(given[r], expected[r]) == "");
        REQUIRE(difference(given_in_place[r], expected[r]) == "");
        REQUIRE(difference(given_from_secondary[r], expected_from_secondary[r]) == "");
        REQUIRE(intact[r]);
    }
}

/// hierarchical_quantized_reduce_scatter of tensors of n elements, twice in the same workspace: on one stream, and on
/// two.
template <class T, zeropp::quantizer IntraNode, zeropp::quantizer InterNode>
void check_reduce_scatter(const IntraNode& intra_node, const InterNode& inter_node, const ranks_and_nodes& ranks,
                          std::size_t n, const zeropp::reduce_options& options, const make_transport& make) {
    INFO(zeropp::short_text(intra_node.name()).str()
         << " + " << zeropp::short_text(inter_node.name()).str() << " on " << ranks.name << ", " << n << " elements, "
         << options.text(options.chunks).str());
    const auto size = static_cast<std::size_t>(ranks.topology.size());
    const zeropp::partition part(n, ranks.topology.size());
    const auto held = tensor<T>(n, 31, n);
    const std::size_t bytes = hierarchical_quantized_reduce_scatter_workspace_bytes(
        ranks.topology, zeropp::hops{intra_node, inter_node}, n, options);

    of_ranks<T> expected(size);
    with_communicators(ranks, on_host, [&](auto& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        const auto full = tensor<T>(n, r, n);
        expected[r] = shard_of(held, part, comm.rank());
        hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{intra_node, inter_node}, full,
                                              expected[r], options);
    });

    of_ranks<T> given(size);
    of_ranks<T> given_by_two(size);
    std::vector<char> intact(size);
    with_communicators(ranks, make, [&](auto& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        const owned_stream first;
        const owned_stream second;
        const device_array<T> full(tensor<T>(n, r, n), r % 2);
        const device_array<T> shard(shard_of(held, part, comm.rank()), r % 3);
        const device_array<T> shard_by_two(shard_of(held, part, comm.rank()));
        const device_array<std::byte> scratch(bytes);
        hierarchical_quantized_reduce_scatter(first.exec(), comm, zeropp::hops{intra_node, inter_node}, full.view(),
                                              shard.view(), options, scratch.view());
        hierarchical_quantized_reduce_scatter(zeropp::pipeline<cuda_stream>{first.exec(), second.exec()}, comm,
                                              zeropp::hops{intra_node, inter_node}, full.view(), shard_by_two.view(),
                                              options, scratch.view());
        first.exec().wait();
        given[r] = shard.read();
        given_by_two[r] = shard_by_two.read();
        intact[r] = full.intact() && shard.intact() && shard_by_two.intact() && scratch.intact() &&
                    difference(full.read(), tensor<T>(n, r, n)).empty();
    });
    for (std::size_t r = 0; r != size; ++r) {
        INFO("rank " << r);
        REQUIRE(difference(given[r], expected[r]) == "");
        REQUIRE(difference(given_by_two[r], expected[r]) == "");
        REQUIRE(intact[r]);
    }
}

/// quantized_all_reduce of a list of tensors, in place: on one stream, and in chunks on two.
template <class T, zeropp::quantizer IntraNode, zeropp::quantizer InterNode>
void check_all_reduce(const IntraNode& intra_node, const InterNode& inter_node, const ranks_and_nodes& ranks,
                      const std::vector<std::size_t>& sizes, const zeropp::all_reduce_options& options,
                      const make_transport& make) {
    INFO(zeropp::short_text(intra_node.name()).str()
         << " + " << zeropp::short_text(inter_node.name()).str() << " on " << ranks.name << ", " << sizes.size()
         << " tensors in " << options.chunks << " chunks");
    const auto size = static_cast<std::size_t>(ranks.topology.size());
    std::vector<of_ranks<T>> expected(size);
    with_communicators(ranks, on_host, [&](auto& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        std::vector<zeropp::list_tensor<T, zeropp::host_space>> tensors;
        for (const std::size_t n : sizes) expected[r].push_back(tensor<T>(n, r, n));
        for (std::vector<T>& t : expected[r]) tensors.emplace_back(t);
        const zeropp::tensor_list<T> list(comm.topology(), tensors);
        quantized_all_reduce(zeropp::host{}, comm, zeropp::hops{intra_node, inter_node, inter_node}, list, list,
                             options);
    });

    std::vector<std::string> wrong(size);
    with_communicators(ranks, make, [&](auto& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        for (const bool both : {false, true}) {
            const owned_stream first, second;
            std::deque<device_array<T>> arrays;
            std::vector<zeropp::list_tensor<T, zeropp::device_space>> tensors;
            for (const std::size_t n : sizes) {
                arrays.emplace_back(tensor<T>(n, r, n), r % 3);
                tensors.emplace_back(arrays.back().view());
            }
            const zeropp::tensor_list<T, zeropp::device_space> list(comm.topology(), tensors);
            const device_array<std::byte> scratch(quantized_all_reduce_workspace_bytes(
                comm.topology(), zeropp::hops{intra_node, inter_node, inter_node}, list, options));
            const zeropp::pipeline<cuda_stream> exec{first.exec(), both ? second.exec() : first.exec()};
            quantized_all_reduce(exec, comm, zeropp::hops{intra_node, inter_node, inter_node}, list, list, options,
                                 scratch.view());
            first.exec().wait();
            for (std::size_t t = 0; t != sizes.size(); ++t) {
                wrong[r] += difference(arrays[t].read(), expected[r][t]);
                if (!arrays[t].intact()) wrong[r] += "written outside a tensor";
            }
            if (!scratch.intact()) wrong[r] += "written outside the workspace";
        }
    });
    for (std::size_t r = 0; r != size; ++r) {
        INFO("rank " << r);
        REQUIRE(wrong[r] == "");
    }
}

/// Whole weights and a difference of a list of tensors, in floats, to replicas in T, gathered on the way and once more.
/// Slices are owned by the ranks of `over`: the topology, or its shard_owners.
template <class T, zeropp::difference_format Q, zeropp::quantizer IntraNode, zeropp::topology Topology>
void check_update(const Q& q, const IntraNode& intra_node, const ranks_and_nodes& ranks, const Topology& over,
                  const std::vector<std::size_t>& sizes, const zeropp::gather_options& options,
                  const make_transport& make) {
    INFO("updates of a list on " << ranks.name << ", owned by " << over.groups() << " groups");
    const auto size = static_cast<std::size_t>(ranks.topology.size());
    using by_step = std::vector<std::vector<std::vector<T>>>;
    std::vector<by_step> expected(size);
    const auto shard_at = [&](std::size_t n, int rank, std::uint64_t step) {
        const int group = ranks.topology.group_of(rank);
        if (group >= over.groups()) return std::vector<float>();
        const int owner = over.rank_of(group, ranks.topology.index_of(rank));
        std::vector<float> whole = tensor<float>(n, 1, n);
        // In a later step, every other stretch has other weights.
        const std::vector<float> later = tensor<float>(n, step, n);
        for (std::size_t i = 0; i != n; ++i) whole[i] = i / 100 % 2 == 0 ? later[i] : whole[i];
        return shard_of(whole, zeropp::partition(n, over.size()), owner);
    };
    with_communicators(ranks, on_host, [&](auto& comm) {
        std::vector<std::vector<T>> wholes;
        for (const std::size_t n : sizes) wholes.emplace_back(n);
        const zeropp::tensor_list<T> full(
            over, std::vector<zeropp::list_tensor<T, zeropp::host_space>>(wholes.begin(), wholes.end()));
        using replica_type = zeropp::secondary_replica<zeropp::cast_to<T>, zeropp::host_space, IntraNode>;
        zeropp::workspace<zeropp::host_space> storage(replica_type::storage_bytes(over, full));
        replica_type replica(over, comm.rank(), full, storage.view(), intra_node);
        for (std::uint64_t step = 1; step != 3; ++step) {
            std::vector<std::vector<float>> shards;
            for (const std::size_t n : sizes) shards.push_back(shard_at(n, comm.rank(), step));
            const zeropp::tensor_list<float> shard(
                std::vector<zeropp::list_tensor<float, zeropp::host_space>>(shards.begin(), shards.end()));
            quantized_update(zeropp::host{}, comm, q, shard, replica.to(step, full));
            expected[static_cast<std::size_t>(comm.rank())].push_back(wholes);
        }
    });

    std::vector<std::string> wrong(size);
    with_communicators(ranks, make, [&](auto& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        const owned_stream first, second;
        const zeropp::pipeline<cuda_stream> exec{first.exec(), second.exec()};
        std::deque<device_array<T>> wholes;
        std::vector<zeropp::list_tensor<T, zeropp::device_space>> tensors;
        for (const std::size_t n : sizes) {
            wholes.emplace_back(n, r % 3);
            tensors.emplace_back(wholes.back().view());
        }
        const zeropp::tensor_list<T, zeropp::device_space> full(over, tensors);
        using replica_type = zeropp::secondary_replica<zeropp::cast_to<T>, zeropp::device_space, IntraNode>;
        const device_array<std::byte> storage(replica_type::storage_bytes(over, full));
        replica_type replica(over, comm.rank(), full, storage.view(), intra_node);
        const device_array<std::byte> scratch(
            quantized_update_gather_workspace_bytes(over, q, intra_node, full, options));
        const device_array<std::byte> more(secondary_partition_gather_workspace_bytes(over, intra_node, full));
        const auto compare = [&](const std::string& what, std::size_t step) {
            first.exec().wait();
            for (std::size_t t = 0; t != sizes.size(); ++t) {
                const std::string off = difference(wholes[t].read(), expected[r][step - 1][t]);
                if (!off.empty()) wrong[r] += what + off;
                if (!wholes[t].intact()) wrong[r] += "written outside a tensor";
            }
        };
        for (std::uint64_t step = 1; step != 3; ++step) {
            std::deque<device_array<float>> shards;
            std::vector<zeropp::list_tensor<float, zeropp::device_space>> own;
            for (const std::size_t n : sizes) {
                shards.emplace_back(shard_at(n, comm.rank(), step), r % 2);
                own.emplace_back(shards.back().view());
            }
            const zeropp::tensor_list<float, zeropp::device_space> shard(own);
            quantized_update(exec, comm, q, shard, replica.to(step, full), options, scratch.view());
            compare("updated: ", step);
            secondary_partition_gather(first.exec(), comm, replica, step, full, more.view());
            compare("again: ", step);
            if constexpr (std::is_same_v<Q, zeropp::exact_differences>) {
                const std::string refused = thrown<zeropp::precondition_error>([&] {
                    gpu::captured(first.native(), cudaStreamCaptureModeThreadLocal, [&] {
                        quantized_update(exec, comm, q, shard, replica.to(step + 1, full), options, scratch.view());
                    });
                });
                if (refused != "quantized_update: expected a stream that no CUDA graph captures, since the host reads "
                               "sizes of messages, given a captured one") {
                    wrong[r] += "captured: " + refused;
                }
            }
        }
        if (!scratch.intact() || !storage.intact() || !more.intact()) wrong[r] += "written outside a workspace";
    });
    for (std::size_t r = 0; r != size; ++r) {
        INFO("rank " << r);
        REQUIRE(wrong[r] == "");
    }
}

}  // namespace

void check_updates(const make_transport& make) {
    const live_objects before = live();
    for (const ranks_and_nodes& ranks : topologies()) {
        const auto check = [&](const auto& over) {
            check_update<zeropp::bfloat16>(zeropp::hadamard<zeropp::block_integer<4, 128>>(),
                                           zeropp::block_integer<8, 256>(), ranks, over,
                                           {3001, 0, 5, 703, 1, 9000, 127}, {.chunks = 3}, make);
            check_update<zeropp::bfloat16>(zeropp::exact_differences(), zeropp::cast_to<zeropp::bfloat16>(), ranks,
                                           over, {3001, 0, 5, 703, 1, 40000, 127}, {.chunks = 3}, make);
        };
        check(ranks.topology);
        for (int groups = 1; groups < ranks.topology.groups(); ++groups) {
            check(zeropp::shard_owners(ranks.topology, groups));
        }
    }
    REQUIRE(device_fault() == "");
    REQUIRE(live() == before);
}

void check_all_reduces(const make_transport& make) {
    using zeropp::all_reduce_algorithm;
    using zeropp::block_integer;
    using zeropp::reduction;
    const live_objects before = live();
    for (const ranks_and_nodes& ranks : topologies()) {
        check_all_reduce<zeropp::bfloat16>(block_integer<8, 256>(), block_integer<4, 128>(), ranks,
                                           {3001, 0, 5, 700, 1, 9000},
                                           {reduction::mean, 3, all_reduce_algorithm::two_shot}, make);
        check_all_reduce<zeropp::bfloat16>(block_integer<8, 256>(), block_integer<4, 128>(), ranks, {40, 1301},
                                           {reduction::sum, 1, all_reduce_algorithm::one_shot}, make);
    }
    std::vector<std::size_t> sizes(300);
    for (std::size_t t = 0; t != sizes.size(); ++t) sizes[t] = t * 37 % 101;
    check_all_reduce<zeropp::bfloat16>(block_integer<8, 256>(), block_integer<4, 128>(), {"2 x 2", {2, 2}}, sizes,
                                       {reduction::mean, 2, all_reduce_algorithm::two_shot}, make);
    REQUIRE(device_fault() == "");
    REQUIRE(live() == before);
}

void check_all_gathers(const make_transport& make) {
    const live_objects before = live();
    std::size_t choice = 0;
    for (const ranks_and_nodes& ranks : topologies()) {
        for (const std::size_t n : {std::size_t{0}, std::size_t{5}, std::size_t{1537}, std::size_t{20011}}) {
            // Each size and each topology with and without quantization.
            if ((choice / 4 + choice) % 2 == 0) {
                check_all_gather<zeropp::bfloat16>(zeropp::block_integer<8, 256>(), ranks, n, make);
            } else {
                check_all_gather<zeropp::half>(zeropp::cast_to<zeropp::half>(), ranks, n, make);
            }
            ++choice;
        }
    }
    REQUIRE(device_fault() == "");
    REQUIRE(live() == before);
}

void check_reduce_scatters(const make_transport& make) {
    using zeropp::block_integer;
    using zeropp::reduction;
    const live_objects before = live();
    std::size_t choice = 0;
    for (const ranks_and_nodes& ranks : topologies()) {
        for (const std::size_t n : {std::size_t{0}, std::size_t{7}, std::size_t{3001}, std::size_t{20011}}) {
            const zeropp::reduce_options options{choice % 2 == 0 ? reduction::sum : reduction::mean,
                                                 choice / 2 % 2 == 0 ? 3 : 1, choice % 5 == 1};
            if (choice++ % 3 == 0) {
                check_reduce_scatter<zeropp::half>(block_integer<8, 256>(), block_integer<8, 256>(), ranks, n, options,
                                                   make);
            } else {
                check_reduce_scatter<zeropp::bfloat16>(block_integer<8, 256>(), block_integer<4, 128>(), ranks, n,
                                                       options, make);
            }
        }
        zeropp::reduce_options many{reduction::mean, 8, false};
        check_reduce_scatter<zeropp::half>(block_integer<8, 256>(), block_integer<8, 256>(), ranks, 9001, many, make);
    }
    REQUIRE(device_fault() == "");
    REQUIRE(live() == before);
}

}  // namespace zeropp_test::simt
