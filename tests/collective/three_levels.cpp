/// \file
/// Collectives over sites of nodes, in other formats along each level, against the reference: their bits on any
/// topology, in any number of chunks, with error feedback; the bytes they send along each level, and their memory.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/three_level.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/counting.hpp>

#include <deque>
#include <map>
#include <string_view>
#include <tuple>

using namespace collective_test;
using zeropp::all_reduce_algorithm;
using zeropp::host;
using zeropp::host_queue;
using zeropp::reduction;
using zeropp::three_level;
using namespace std::string_view_literals;

namespace {

using by_rank = std::vector<std::vector<float>>;
using reducing = zeropp::hops<zeropp::block_integer<8, 16>, zeropp::block_integer<6, 8>, zeropp::block_integer<4, 32>>;
using all_reducing = zeropp::hops<zeropp::block_integer<8, 16>, zeropp::block_integer<6, 8>,
                                  zeropp::block_integer<4, 32>, zeropp::block_integer<7, 8>>;
using reduce_memory = zeropp::error_feedback<reducing, zeropp::residuals_in_int8, zeropp::host_space>;
using all_reduce_memory = zeropp::error_feedback<all_reducing, zeropp::residuals_in_int8, zeropp::host_space>;
using secondary_type = zeropp::secondary_partition<zeropp::block_integer<8, 16>, zeropp::host_space>;
using world = zeropp::counting<zeropp::thread_transport, three_level>;

constexpr std::size_t steps = 2;
const zeropp::level_formats formats{zeropp::wire_format_of(zeropp::block_integer<8, 16>{}),
                                    zeropp::wire_format_of(zeropp::block_integer<6, 8>{}),
                                    zeropp::wire_format_of(zeropp::block_integer<4, 32>{})};
const zeropp::wire_format all_gather_format = zeropp::wire_format_of(zeropp::block_integer<7, 8>{});

/// The reference's quantizers, and those that store their residuals.
const std::vector<reference::quantizer> quantizers{"int8:16"sv, "int6:8"sv, "int4:32"sv, "int7:8"sv};
const std::vector<reference::quantizer> storages{"int8:16"sv, "int8:8"sv, "int8:32"sv, "int8:8"sv};

/// One tensor, and what comes of it on three levels: what is the same in each step without error feedback is of the
/// first step.
struct tensor_case {
    std::size_t n;
    std::vector<std::size_t> extents;
    std::vector<by_rank> fulls;     // by step
    std::vector<by_rank> sums;      // by step, of each rank's slice
    std::vector<float> one_shot;    // the mean
    std::vector<float> two_shot;    // the mean
    by_rank feedback_two_shot;      // the mean, by step
    std::vector<float> gathered;    // of rank 0's tensor
    std::vector<float> regathered;  // that, kept by nodes

    tensor_case(std::size_t elements, const std::vector<std::size_t>& along, std::size_t ranks)
        : n(elements), extents(along), fulls(steps), sums(steps), feedback_two_shot(steps) {
        std::map<std::tuple<std::size_t, std::size_t, std::size_t>, std::vector<float>> residuals;
        for (std::size_t step = 0; step != steps; ++step) {
            for (std::size_t r = 0; r != ranks; ++r) {
                fulls[step].push_back(tensor_of(n, reference::fp32, 1 + n + 64 * step + r));
            }
            for (std::size_t owner = 0; owner != ranks; ++owner) {
                by_rank parts;
                for (const std::vector<float>& full : fulls[step]) {
                    parts.push_back(reference::slice_of(full, ranks, owner));
                }
                sums[step].push_back(reference::summed(
                    parts, extents, [&](std::size_t level, std::size_t sender, const std::vector<float>& values) {
                        return reference::fed_back(values, residuals[{level, sender, owner}], quantizers[level],
                                                   storages[level]);
                    }));
                const std::vector<float> mean = divided(sums[step].back(), ranks);
                append(feedback_two_shot[step],
                       reference::fed_back(mean, residuals[{3, owner, owner}], quantizers[3], storages[3]));
                if (step != 0) continue;
                append(two_shot, quantizers[3].through(mean));
                std::size_t first = 0;
                while (first != 2 && extents[first] == 1) ++first;
                append(one_shot,
                       divided(reference::gathered_sum(parts, extents, quantizers[ranks == 1 ? 0 : first]), ranks));
            }
        }
        gathered = reference::gathered(fulls[0][0], ranks, quantizers[2], reference::fp32);
        regathered = reference::gathered(gathered, extents[0], quantizers[0], reference::fp32);
    }

    static std::vector<float> divided(std::vector<float> values, std::size_t by) {
        const auto divisor = static_cast<float>(by);
        for (float& x : values) x /= divisor;
        return values;
    }
    static void append(std::vector<float>& to, const std::vector<float>& values) {
        to.insert(to.end(), values.begin(), values.end());
    }
};

/// What a rank finds wrong first.
struct findings {
    std::string where;
    std::string first;

    void hold(const std::string& what, const std::string& problem) {
        if (first.empty() && !problem.empty()) first = where + ", " + what + ": " + problem;
    }
    void require(const std::string& what, bool good) { hold(what, std::string(good ? "" : "wrong")); }
    void sends(const std::string& what, const zeropp::traffic& sent, const zeropp::volume& planned) {
        require(what + ", bytes",
                zeropp::volume{sent.intra_node_bytes, sent.inter_node_bytes, sent.inter_site_bytes} == planned);
    }
};

using communicator = zeropp::communicator<three_level, world>;

/// Without a pipeline's threads, arrays.
void check_array(communicator& comm, const tensor_case& c, int chunks, findings& found) {
    const three_level& ranks = comm.topology();
    const auto r = at(comm.rank());
    const host exec, other;
    const zeropp::pipeline<host> both{exec, other};
    guarded<float> full(c.n), result(c.n), shard(c.sums[0][r].size());
    full.fill(c.fulls[0][r]);
    const std::vector<float> before = reference::slice_of(c.fulls[1][r], c.fulls[1].size(), r);
    shard.fill(before);

    comm.world().reset();
    const zeropp::reduce_options options{.operation = reduction::mean, .chunks = chunks, .accumulate = true};
    const std::size_t bytes = hierarchical_quantized_reduce_scatter_workspace_bytes(ranks, reducing(), c.n, options);
    guarded<std::byte> scratch(bytes);
    hierarchical_quantized_reduce_scatter(both, comm, reducing(), full.view(), shard.view(), options, scratch.view());
    found.hold(
        "reduce-scatter",
        difference(shard.values(), reference::added(before, tensor_case::divided(c.sums[0][r], c.sums[0].size()))));
    found.require("reduce-scatter, memory", full.intact() && shard.intact() && scratch.intact());
    found.require("reduce-scatter, plan of memory",
                  bytes == zeropp::reduce_scatter_workspace(ranks, formats, c.n, chunks));
    found.sends("reduce-scatter", comm.world().total(),
                zeropp::reduce_scatter_volume(ranks, formats, c.n, chunks, comm.rank()));

    for (const auto algorithm :
         {all_reduce_algorithm::one_shot, all_reduce_algorithm::two_shot, all_reduce_algorithm::by_size}) {
        comm.world().reset();
        const zeropp::all_reduce_options how{reduction::mean, chunks, algorithm};
        guarded<std::byte> memory(quantized_all_reduce_workspace_bytes(ranks, all_reducing(), c.n, how));
        quantized_all_reduce(both, comm, all_reducing(), full.view(), result.view(), how, memory.view());
        found.require("all-reduce, memory", full.intact() && result.intact() && memory.intact());
        if (algorithm == all_reduce_algorithm::by_size) {
            found.sends("all-reduce", comm.world().total(),
                        zeropp::all_reduce_volume(ranks, formats, all_gather_format, c.n, chunks, comm.rank()));
        } else if (algorithm == all_reduce_algorithm::one_shot) {
            found.hold("one-shot all-reduce", difference(result.values(), c.one_shot));
        } else {
            found.hold("two-shot all-reduce", difference(result.values(), c.two_shot));
        }
    }

    comm.world().reset();
    const zeropp::block_integer<4, 32> int4;
    guarded<std::byte> gathering(quantized_all_gather_workspace_bytes(ranks, int4, c.n, {.chunks = chunks}));
    quantized_all_gather(both, comm, int4, reference::slice_of(c.fulls[0][0], c.fulls[0].size(), r), result.view(),
                         {.chunks = chunks}, gathering.view());
    found.hold("all-gather", difference(result.values(), c.gathered));
    found.require("all-gather, memory", result.intact() && gathering.intact());
    found.sends("all-gather", comm.world().total(),
                zeropp::all_gather_volume(ranks, zeropp::wire_format_of(int4), c.n, chunks, comm.rank()));

    const zeropp::block_integer<8, 16> int8;
    comm.world().reset();
    const int k = comm.group_size();
    guarded<std::byte> storage(secondary_type::storage_bytes(int8, c.n, k));
    guarded<std::byte> messages(zeropp::secondary_partition_gather_workspace_bytes(k, int8, c.n));
    secondary_type secondary(int8, c.n, k, comm.index(), storage.view());
    secondary.store(exec, result.view(), 1);
    secondary_partition_gather(exec, comm, secondary, 1, result.view(), messages.view());
    found.hold("hpZ", difference(result.values(), c.regathered));
    found.require("hpZ, memory", result.intact() && storage.intact() && messages.intact());
    found.sends(
        "hpZ", comm.world().total(),
        zeropp::secondary_gather_volume(ranks, zeropp::whole_nodes, zeropp::wire_format_of(int8), c.n, comm.rank()));
}

/// With a pipeline's threads and error feedback, a list.
void check_list(communicator& comm, const std::vector<tensor_case>& cases, int chunks, findings& found) {
    const three_level& ranks = comm.topology();
    const auto r = at(comm.rank());
    std::deque<guarded<float>> fulls, results, shards;
    std::vector<zeropp::list_tensor<float, zeropp::host_space>> full_list, result_list, shard_list;
    for (const tensor_case& c : cases) {
        full_list.emplace_back(fulls.emplace_back(c.n).view());
        result_list.emplace_back(results.emplace_back(c.n).view());
        shard_list.emplace_back(shards.emplace_back(c.sums[0][r].size()).view());
    }
    const zeropp::tensor_list<float> full(ranks, full_list), result(ranks, result_list), shard(shard_list);
    const zeropp::reduce_options options{.chunks = chunks};
    const zeropp::all_reduce_options how{reduction::mean, chunks};
    guarded<std::byte> reduce_storage(reduce_memory::storage_bytes(ranks, full));
    guarded<std::byte> all_reduce_storage(all_reduce_memory::storage_bytes(ranks, full));
    reduce_memory residuals(ranks, full, reduce_storage.view());
    all_reduce_memory all_residuals(ranks, full, all_reduce_storage.view());
    guarded<std::byte> scratch(hierarchical_quantized_reduce_scatter_workspace_bytes(ranks, reducing(), full, options));
    guarded<std::byte> more(quantized_all_reduce_workspace_bytes(ranks, all_reducing(), full, how));
    const host_queue first, second;
    const zeropp::pipeline<host_queue> both{first, second};
    for (std::size_t step = 0; step != steps; ++step) {
        for (std::size_t t = 0; t != cases.size(); ++t) fulls[t].fill(cases[t].fulls[step][r]);
        hierarchical_quantized_reduce_scatter(both, comm, zeropp::with_error_feedback(reducing(), residuals), full,
                                              shard, options, scratch.view());
        quantized_all_reduce(both, comm, zeropp::with_error_feedback(all_reducing(), all_residuals), full, result, how,
                             more.view());
        first.wait();
        for (std::size_t t = 0; t != cases.size(); ++t) {
            const std::string where =
                "tensor " + std::to_string(t) + " of the list, step " + std::to_string(step) + ", ";
            found.hold(where + "reduce-scatter", difference(shards[t].values(), cases[t].sums[step][r]));
            found.hold(where + "all-reduce", difference(results[t].values(), cases[t].feedback_two_shot[step]));
            found.require(where + "memory", fulls[t].intact() && shards[t].intact() && results[t].intact());
        }
        found.require("list, memory",
                      reduce_storage.intact() && all_reduce_storage.intact() && scratch.intact() && more.intact());
    }
}

/// What updates in the format `q` make of `n` elements over `ranks`, on every rank: whole tensors, gathered after each
/// of three updates.
template <class T, class Topology, class Q>
by_rank updated(const Topology& ranks, std::size_t n, const Q& q) {
    by_rank whole(at(ranks.size()));
    on_ranks(ranks.size(), "updates", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(ranks, transport);
        using replica_type = zeropp::secondary_replica<zeropp::cast_to<T>, zeropp::host_space>;
        guarded<std::byte> kept(replica_type::storage_bytes(ranks, n, comm.rank()));
        replica_type replica(ranks, comm.rank(), n, kept.view());
        const host_queue first, second;
        for (int step = 1; step != 4; ++step) {
            const auto shard =
                reference::slice_of(tensor_of(n, reference::fp32, at(step)), at(ranks.size()), at(comm.rank()));
            std::vector<float> full(n);
            quantized_update(zeropp::pipeline(first, second), comm, q, shard,
                             replica.to(static_cast<std::uint64_t>(step), full), {.chunks = step});
            first.wait();
            auto& all = whole[at(comm.rank())];
            all.insert(all.end(), full.begin(), full.end());
            secondary_partition_gather(host(), comm, replica, static_cast<std::uint64_t>(step), full);
            all.insert(all.end(), full.begin(), full.end());
        }
        if (!kept.intact()) whole[at(comm.rank())].clear();
    });
    return whole;
}

}  // namespace

TEST_CASE("three levels: replicas have the bits that they have on two, whoever they come through") {
    for (const three_level& ranks :
         {three_level(2, 2, 2), three_level(3, 2, 1), three_level(2, 1, 2), three_level(2, 3, 2)}) {
        const zeropp::block_integer<8, 16> q;
        const by_rank expected = updated<float>(zeropp::two_level(ranks.groups(), ranks.group_size(0)), 1003, q);
        const by_rank given = updated<float>(ranks, 1003, q);
        REQUIRE(expected[0].size() == 6 * 1003);
        for (std::size_t r = 0; r != given.size(); ++r) CHECK(difference(given[r], expected[r]) == "");
    }
    const by_rank exact = updated<zeropp::bfloat16>(three_level(2, 2, 2), 9001, zeropp::exact_differences());
    std::vector<float> expected;
    for (std::size_t step = 1; step != 4; ++step) {
        const auto stored = narrowed<zeropp::bfloat16>(tensor_of(9001, reference::fp32, step));
        const std::vector<float> gathered = widened(stored.data(), stored.size());
        for (int times = 0; times != 2; ++times) expected.insert(expected.end(), gathered.begin(), gathered.end());
    }
    for (const std::vector<float>& given : exact) CHECK(difference(given, expected) == "");
    CHECK_THROWS_WITH(zeropp::shard_owners(three_level(2, 2, 2), 2),
                      "shard_owners: expected three levels with shards on all 4 groups, given 2");
}

TEST_CASE("three levels: an update on a pipeline takes the workspace that it asks for, on one site too") {
    constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> q;
    using replica_type = zeropp::secondary_replica<zeropp::cast_to<float>, zeropp::host_space>;
    for (const three_level& ranks : {three_level(1, 2, 1), three_level(2, 1, 1)}) {
        // Two chunks of 501 times 256 elements have 16 bytes more than one of all.
        const std::size_t n = 2 * 1002 * 256;
        const auto errors = errors_on_ranks(2, "an update", [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(ranks, transport);
            std::vector<std::byte> kept(replica_type::storage_bytes(ranks, n));
            replica_type replica(ranks, comm.rank(), n, kept);
            std::vector<std::byte> scratch(quantized_update_workspace_bytes(ranks, q, replica.stored_as(), n));
            const host exec, other;
            for (const float x : {1.0f, 2.0f}) {
                quantized_update(zeropp::pipeline(exec, other), comm, q, std::vector<float>(n / 2, x),
                                 replica.to(static_cast<std::uint64_t>(x)), {}, scratch);
            }
        });
        for (const std::string& error : errors) CHECK(error == "");
    }
}

TEST_CASE("three levels: the bits of the reference, the bytes of the plan, on every topology, in any chunks") {
    for (int shape = 0; shape != 27; ++shape) {
        const int sites = shape / 9 + 1, nodes = shape / 3 % 3 + 1, of_node = shape % 3 + 1;
        const three_level ranks(sites, nodes, of_node);
        std::vector<tensor_case> cases;
        for (const std::size_t n : {0u, 1u, 5u, 1003u}) {
            cases.emplace_back(n, std::vector{at(of_node), at(nodes), at(sites)}, at(ranks.size()));
        }
        std::vector<findings> found(at(ranks.size()));
        on_ranks(ranks.size(), "three levels", [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(three_level(ranks), world(transport, ranks));
            for (const int chunks : {1, 2, 7}) {
                findings& here = found[at(comm.rank())];
                for (const tensor_case& c : cases) {
                    here.where = std::to_string(c.n) + " elements in " + std::to_string(chunks) + " chunks";
                    check_array(comm, c, chunks, here);
                }
                here.where = "a list in " + std::to_string(chunks) + " chunks";
                check_list(comm, cases, chunks, here);
            }
        });
        for (std::size_t r = 0; r != found.size(); ++r) {
            INFO(sites << " sites of " << nodes << " nodes of " << of_node << " ranks, rank " << r);
            REQUIRE(found[r].first == "");
        }
    }
}
