/// \file
/// Error feedback: against a reference that keeps the residuals in the plainest way, and what its state promises.

#include "collective/ranks.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/transport/checked.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>

using namespace collective_test;
using zeropp::host;
using zeropp::host_queue;

namespace {

using int4 = zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>;
using int8 = zeropp::block_integer<8, 256>;
constexpr zeropp::hops by_hop{int8(), int4()};

template <class Storage, class IntraNode = int8, class InterNode = int4>
using memory_of = zeropp::error_feedback<zeropp::hops<IntraNode, InterNode>, Storage, zeropp::host_space>;

// Two would write into one storage.
static_assert(!std::copyable<memory_of<zeropp::residuals_in_int8>> &&
              std::movable<memory_of<zeropp::residuals_in_int8>>);

using tensors = std::vector<std::vector<float>>;

/// Residuals of all ranks, by what they belong to: (who sends, whose slice it is).
class plain_memory {
public:
    plain_memory(const reference::quantizer& intra_node, const reference::quantizer& inter_node,
                 const reference::quantizer& intra_node_storage, const reference::quantizer& inter_node_storage)
        : intra_node_(intra_node), inter_node_(inter_node), intra_node_storage_(intra_node_storage),
          inter_node_storage_(inter_node_storage) {}

    /// The sums of all slices, by rank.
    tensors reduce(const node_map& map, const tensors& fulls) {
        const auto nodes = reference::nodes_of(map.node_of_rank);
        const std::size_t ranks = fulls.size();
        tensors shards;
        for (std::size_t owner = 0; owner != ranks; ++owner) {
            std::vector<float> total;
            for (std::size_t node = 0; node != nodes.size(); ++node) {
                std::vector<float> of_node;
                for (const int r : nodes[node]) {
                    std::vector<float> own = reference::slice_of(fulls[at(r)], ranks, owner);
                    if (reference::has_intra_node_hop(nodes)) {
                        own = reference::fed_back(own, first_[{at(r), owner}], intra_node_, intra_node_storage_);
                    }
                    of_node = of_node.empty() ? own : reference::added(of_node, own);
                }
                if (nodes.size() > 1) {
                    of_node = reference::fed_back(of_node, second_[{node, owner}], inter_node_, inter_node_storage_);
                }
                total = total.empty() ? of_node : reference::added(total, of_node);
            }
            shards.push_back(total);
        }
        return shards;
    }

private:
    using residuals = std::map<std::pair<std::size_t, std::size_t>, std::vector<float>>;

    reference::quantizer intra_node_, inter_node_, intra_node_storage_, inter_node_storage_;
    residuals first_, second_;
};

/// Reduces four times, and compares each time.
template <class Storage, class Exec = host, class IntraNode = int8, class InterNode = int4>
void check_against_plain(const node_map& map, std::size_t n, int chunks) {
    constexpr std::size_t steps = 4;
    const IntraNode intra_node;
    const InterNode inter_node;
    using memory_type = memory_of<Storage, IntraNode, InterNode>;
    plain_memory plain(described(intra_node), described(inter_node),
                       described(typename memory_type::template storage_at<0>{}),
                       described(typename memory_type::template storage_at<1>{}));
    std::vector<tensors> fulls, expected, results(steps, tensors(at(map.ranks())));
    for (std::size_t step = 0; step != steps; ++step) {
        tensors of_step;
        for (int r = 0; r != map.ranks(); ++r) {
            of_step.push_back(tensor_of(n, reference::fp32, 64 * step + at(r) + 1));
        }
        expected.push_back(plain.reduce(map, of_step));
        fulls.push_back(of_step);
    }
    std::vector<char> intact(at(map.ranks()));
    on_ranks(map.ranks(), "error feedback on " + map.name, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(map.topology(), transport);
        const auto r = at(comm.rank());
        const zeropp::reduce_options options{.chunks = chunks};
        guarded<std::byte> storage(memory_type::storage_bytes(comm.topology(), n));
        memory_type memory(comm.topology(), n, storage.view());
        zeropp::workspace<zeropp::host_space> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
            comm.topology(), zeropp::hops{intra_node, inter_node}, n, options));
        const Exec exec;
        for (std::size_t step = 0; step != fulls.size(); ++step) {
            std::vector<float>& shard = results[step][r];
            shard = reference::slice_of(fulls[step][r], fulls[step].size(), r);
            zeropp::hierarchical_quantized_reduce_scatter(
                exec, comm, zeropp::with_error_feedback(zeropp::hops{intra_node, inter_node}, memory), fulls[step][r],
                shard, options, scratch.view());
            exec.wait();
        }
        intact[r] = storage.intact();
    });
    REQUIRE(intact == std::vector<char>(intact.size(), 1));
    for (std::size_t step = 0; step != fulls.size(); ++step) {
        for (std::size_t r = 0; r != results[step].size(); ++r) {
            INFO(map.name << ", " << n << " elements, " << chunks << " chunks, step " << step << ", rank " << r);
            REQUIRE(difference(results[step][r], expected[step][r]) == "");
        }
    }
}

}  // namespace

TEST_CASE("error feedback: floats, on every topology, in any number of chunks") {
    for (std::size_t m = 0; m != node_maps().size(); ++m) {
        for (const std::size_t n : some_counts(128, m, 3)) {
            check_against_plain<zeropp::residuals_in_fp32>(node_maps()[m], n, 1 + static_cast<int>(m % 3));
        }
    }
}

TEST_CASE("error feedback: residuals in bfloat16") {
    for (const std::size_t m : {std::size_t{2}, std::size_t{4}, std::size_t{10}}) {
        check_against_plain<zeropp::residuals_in_bf16>(node_maps()[m], 3001, 2);
    }
}

TEST_CASE("error feedback: blocks of INT8, on a queue") {
    for (const std::size_t m : {std::size_t{1}, std::size_t{3}, std::size_t{10}}) {
        check_against_plain<zeropp::residuals_in_int8, host_queue>(node_maps()[m], 3001, 3);
    }
}

TEST_CASE("error feedback: two bits of rotated gradients add up to the gradients, in doubles that know of no codec") {
    using IntraNode = zeropp::hadamard<zeropp::block_integer<8, 512>>;
    using InterNode = zeropp::hadamard<zeropp::block_integer<2, 64, zeropp::signed_absmax, zeropp::bfloat16>>;
    using memory_type = memory_of<zeropp::residuals_in_fp32, IntraNode, InterNode>;
    constexpr zeropp::hops rotated{IntraNode(), InterNode()};
    constexpr std::size_t steps = 100;
    constexpr std::size_t n = 1003;
    const zeropp::two_level nodes(2, 2);
    // How far all that has arrived is from all that should have, in gradients: after a tenth of the steps, and after
    // all.
    const auto drift = [&](bool keeping) {
        std::vector<std::vector<double>> owed(4);
        std::vector<std::array<double, 2>> worst(4);
        on_ranks(4, "error feedback, added up", [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(nodes, transport);
            const auto r = at(comm.rank());
            std::vector<std::byte> storage(memory_type::storage_bytes(nodes, n));
            memory_type memory(nodes, n, storage);
            for (std::size_t step = 1; step <= steps; ++step) {
                std::vector<float> full(n);
                std::vector<double> sum(n);
                for (std::size_t of = 0; of != 4; ++of) {
                    for (std::size_t i = 0; i != n; ++i) {
                        // One direction that lasts, and one that is drawn.
                        const double x = std::sin(static_cast<double>(i * (of + 1))) +
                                         std::sin(static_cast<double>(1 + i + 7919 * step + 104729 * of));
                        if (of == r) full[i] = static_cast<float>(x);
                        sum[i] += x;
                    }
                }
                // Slices of 251, the last one of 250.
                sum = {sum.begin() + static_cast<std::ptrdiff_t>(251 * r),
                       sum.begin() + static_cast<std::ptrdiff_t>(std::min(251 * (r + 1), n))};
                std::vector<float> shard(sum.size());
                if (keeping) {
                    zeropp::hierarchical_quantized_reduce_scatter(
                        host{}, comm, zeropp::with_error_feedback(rotated, memory), full, shard);
                } else {
                    zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, rotated, full, shard);
                }
                owed[r].resize(sum.size());
                for (std::size_t i = 0; i != sum.size(); ++i) {
                    owed[r][i] += sum[i] - static_cast<double>(shard[i]);
                    const double off = std::abs(owed[r][i]);
                    if (step == steps / 10) worst[r][0] = std::max(worst[r][0], off);
                    if (step == steps) worst[r][1] = std::max(worst[r][1], off);
                }
            }
        });
        std::array<double, 2> of_all{};
        for (const auto& of_rank : worst) {
            for (std::size_t i = 0; i != 2; ++i) of_all[i] = std::max(of_all[i], of_rank[i]);
        }
        return of_all;
    };
    const auto with = drift(true);
    const auto without = drift(false);
    INFO("with " << with[0] << ", " << with[1] << ", without " << without[0] << ", " << without[1]);
    // Elements are at most 8: what is owed stays one step's, and without feedback it grows with the steps.
    CHECK(with[0] < 8);
    CHECK(with[1] < 8);
    CHECK(without[1] > 10 * with[1]);
}

TEST_CASE("error feedback: the memory it takes is what the page says") {
    using zeropp::two_level;
    const std::size_t n = 1 << 20;
    // Bytes for each element of the gradient, padding of messages aside.
    const auto bytes = [&](std::size_t total) { return static_cast<double>(total) / static_cast<double>(n); };
    CHECK(bytes(memory_of<zeropp::residuals_in_fp32>::storage_bytes(two_level(2, 4), n)) == 4 * 1.25);
    CHECK(bytes(memory_of<zeropp::residuals_in_bf16>::storage_bytes(two_level(2, 4), n)) == 2 * 1.25);
    CHECK(bytes(memory_of<zeropp::residuals_in_fp32>::storage_bytes(two_level(1, 8), n)) == 4);
    CHECK(bytes(memory_of<zeropp::residuals_in_fp32>::storage_bytes(two_level(8, 1), n)) == 4);
    // 1 + 4 / 256 inside, 1 + 4 / 128 across; of the second only 1/8.
    CHECK(bytes(memory_of<zeropp::residuals_in_int8>::storage_bytes(two_level(4, 8), n)) ==
          1 + 4.0 / 256 + (1 + 4.0 / 128) / 8);
}

namespace {

/// One rank and its memory, with a gradient that has something to lose.
template <class Storage>
struct alone_with {
    alone_with() : storage(memory_of<Storage>::storage_bytes(ranks, n)), memory(ranks, n, storage.view()) {}

    std::vector<float> reduce(std::uint64_t seed) { return reduce(tensor_of(n, reference::fp32, seed)); }

    std::vector<float> reduce(const std::vector<float>& full) {
        std::vector<float> shard(n);
        zeropp::run_on_threads(1, [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(ranks, transport);
            zeropp::hierarchical_quantized_reduce_scatter(host_queue{}, comm,
                                                          zeropp::with_error_feedback(by_hop, memory), full, shard);
        });
        return shard;
    }

    static constexpr std::size_t n = 1000;
    zeropp::two_level ranks{1, 1};
    zeropp::workspace<zeropp::host_space> storage;
    memory_of<Storage> memory;
};
using alone = alone_with<zeropp::residuals_in_int8>;

/// Residuals beyond 65504 are infinite.
struct residuals_in_half {
    template <zeropp::quantizer Q>
    using storage = zeropp::cast_to<zeropp::half>;
};

}  // namespace

TEST_CASE("error feedback: a tensor without elements is used as any other") {
    using memory_type = memory_of<zeropp::residuals_in_int8>;
    const zeropp::two_level ranks(1, 1);
    zeropp::workspace<zeropp::host_space> none(memory_type::storage_bytes(ranks, 0));
    memory_type memory(ranks, 0, none.view());
    zeropp::run_on_threads(1, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(ranks, transport);
        std::vector<float> full, shard;
        zeropp::hierarchical_quantized_reduce_scatter(host_queue{}, comm, zeropp::with_error_feedback(by_hop, memory),
                                                      full, shard);
    });
    CHECK(memory.uses() == 1);
}

TEST_CASE("error feedback: uses and residuals can be saved and restored") {
    alone first;
    for (const std::uint64_t seed : {1u, 2u, 3u}) first.reduce(seed);
    const std::uint64_t uses = first.memory.uses();
    CHECK(uses == 3);
    const auto bytes = first.memory.residuals();
    const std::vector<std::byte> saved(bytes.data(), bytes.data() + bytes.size());
    alone second;
    std::copy(saved.begin(), saved.end(), second.memory.residuals().data());
    second.memory.restore(uses);
    CHECK(difference(second.reduce(4), first.reduce(4)) == "");
    CHECK(second.memory.uses() == first.memory.uses());
    const auto a = first.memory.residuals();
    const auto b = second.memory.residuals();
    CHECK(std::equal(a.data(), a.data() + a.size(), b.data()));
}

TEST_CASE("error feedback: forgets when told") {
    alone told, fresh;
    for (const std::uint64_t seed : {1u, 2u}) told.reduce(seed);
    told.memory.reset();
    CHECK(difference(told.reduce(3), fresh.reduce(3)) == "");
    CHECK(difference(told.reduce(4), fresh.reduce(4)) == "");
}

TEST_CASE("error feedback: an overflow does not outlive its step") {
    alone overflowing, steady;
    overflowing.reduce(1);
    steady.reduce(1);
    const std::vector<float> broken(alone::n, std::numeric_limits<float>::infinity());
    const std::vector<float> shard = overflowing.reduce(broken);
    CHECK(std::all_of(shard.begin(), shard.end(), [](float x) { return std::isnan(x); }));
    // Every block overflowed, so every residual is the one from before.
    CHECK(difference(overflowing.reduce(2), steady.reduce(2)) == "");
}

TEST_CASE("error feedback: nor do residuals that their storage cannot hold") {
    alone_with<residuals_in_half> memory;
    std::vector<float> huge = tensor_of(alone::n, reference::fp32, 1);
    for (float& x : huge) x *= 1e8f;
    memory.reduce(huge);
    const std::vector<float> lost = memory.reduce(2);
    CHECK(std::any_of(lost.begin(), lost.end(), [](float x) { return std::isnan(x); }));
    const std::vector<float> after = memory.reduce(3);
    CHECK(std::none_of(after.begin(), after.end(), [](float x) { return std::isnan(x); }));
}

TEST_CASE("error feedback: what it was not made for is refused, by all ranks") {
    CHECK(zeropp_test::thrown<zeropp::precondition_error>([] {
              std::vector<std::byte> little(16);
              memory_of<zeropp::residuals_in_int8>(zeropp::two_level(1, 1), 1000, little);
          }).starts_with("error_feedback: expected a workspace of at least "));

    const auto errors = errors_on_ranks(4, "memory for others", [](zeropp::thread_transport& transport) {
        zeropp::checked<zeropp::thread_transport> world(transport);
        zeropp::communicator comm(zeropp::two_level(2, 2), world);
        // Rank 1 brings memory for another tensor.
        const std::size_t n = comm.rank() == 1 ? 200 : 100;
        using memory_type = memory_of<zeropp::residuals_in_fp32>;
        zeropp::workspace<zeropp::host_space> storage(memory_type::storage_bytes(comm.topology(), n));
        memory_type memory(comm.topology(), n, storage.view());
        std::vector<float> full(100), shard(25);
        zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::with_error_feedback(by_hop, memory), full,
                                                      shard);
    });
    for (const std::string& error : errors) {
        INFO(error);
        CHECK(error.find("expected error feedback for 100 elements over 4 ranks in 2 groups, given one for 200 "
                         "elements over 4 ranks in 2 groups") != std::string::npos);
    }
}

TEST_CASE("error feedback: nodes of as many ranks in other places are refused") {
    const auto errors = errors_on_ranks(10, "memory for other nodes", [](zeropp::thread_transport& transport) {
        using memory_type = memory_of<zeropp::residuals_in_fp32>;
        const auto made_for = zeropp::two_level::of_nodes({3, 5, 2}), used_on = zeropp::two_level::of_nodes({5, 3, 2});
        zeropp::communicator comm(used_on, transport);
        zeropp::workspace<zeropp::host_space> storage(memory_type::storage_bytes(made_for, 100));
        memory_type memory(made_for, 100, storage.view());
        std::vector<float> full(100), shard(10);
        zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::with_error_feedback(by_hop, memory), full,
                                                      shard);
    });
    for (const std::string& error : errors) {
        CHECK(error ==
              "hierarchical_quantized_reduce_scatter: expected error feedback for 100 elements over 10 ranks in "
              "3 groups, given one for 100 elements over 10 ranks in 3 groups in another topology");
    }
}

TEST_CASE("error feedback: ranks with another number of uses are told so") {
    alone a, b;
    CHECK(a.memory.text() == b.memory.text());
    a.reduce(1);
    CHECK(a.memory.text() != b.memory.text());
}
