/// \file
/// The all-gather of differences: its bits, its drift, its refusals.

#include "collective/differences.hpp"
#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_difference_all_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/topology/flat.hpp>

#include <cmath>
#include <limits>
#include <vector>

using namespace collective_test;
using zeropp::host;

namespace {

constexpr zeropp::block_integer<4, 128, zeropp::signed_extreme, zeropp::half> int4;

template <class T>
void check(const node_map& map, std::size_t n) {
    const auto ranks = at(map.ranks());
    const std::vector<float> start = tensor_of(n, format_of<T>, 5);
    std::vector<std::vector<std::vector<float>>> results(3, std::vector<std::vector<float>>(ranks));
    std::vector<std::vector<float>> weights, expected;
    for (std::size_t step = 0; step != results.size(); ++step) {
        weights.push_back(walked(step == 0 ? start : weights.back(), step));
        expected.push_back(updated<T>(weights.back(), step == 0 ? start : expected.back(), ranks, int4));
    }
    on_ranks(map.ranks(), "differences on " + map.name, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(map.topology(), transport);
        const auto r = at(comm.rank());
        guarded<T> replica(n);
        replica.fill(narrowed<T>(start));
        for (std::size_t step = 0; step != results.size(); ++step) {
            const std::vector<float> shard = reference::slice_of(weights[step], ranks, r);
            if (step == 1) {
                const zeropp::host_queue queue;
                zeropp::quantized_difference_all_gather(queue, comm, int4, shard, replica.view());
            } else {
                zeropp::quantized_difference_all_gather(host{}, comm, int4, shard, replica.view());
            }
            if (replica.intact()) results[step][r] = replica.values();
        }
    });
    for (std::size_t step = 0; step != results.size(); ++step) {
        for (std::size_t r = 0; r != ranks; ++r) {
            INFO(map.name << ", " << n << " elements, step " << step << ", rank " << r);
            REQUIRE(difference(results[step][r], expected[step]) == "");
        }
    }
}

}  // namespace

TEST_CASE("differences: one step beyond a half's range, or of NaN, does not outlive it") {
    for (const float beyond : {70000.0f, -1e30f, std::numeric_limits<float>::quiet_NaN()}) {
        constexpr std::size_t n = 512;
        std::vector<std::vector<float>> after(4);
        std::vector<float> during(4);
        on_ranks(4, "one step that is not finite", [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(zeropp::flat(4), transport);
            std::vector<zeropp::half> replica(n, zeropp::element_traits<zeropp::half>::from_float(1.0f));
            std::vector<float> shard(n / 4, 1.0f);
            for (int step = 0; step != 20; ++step) {
                shard[7] = step == 3 ? beyond : 1.0f;
                zeropp::quantized_difference_all_gather(host{}, comm, int4, shard, replica);
                if (step == 3) during[at(comm.rank())] = static_cast<float>(replica[7]);
            }
            after[at(comm.rank())] = widened(replica.data(), n);
        });
        for (const float element : during) CHECK(!std::isfinite(element));
        for (const auto& values : after) CHECK(values == std::vector<float>(n, 1.0f));
    }
}

TEST_CASE("differences: replicas of floats, and of bfloat16 beside weights in float, on every topology") {
    for (std::size_t m = 0; m != node_maps().size(); ++m) {
        for (const std::size_t n : some_counts(128, m, 1)) {
            if (m % 2 == 0) {
                check<float>(node_maps()[m], n);
            } else {
                check<zeropp::bfloat16>(node_maps()[m], n);
            }
        }
    }
}

TEST_CASE("differences: after 10,000 steps a replica is as near as after ten, and the same on all ranks") {
    const zeropp::hadamard<zeropp::block_integer<4, 64, zeropp::signed_extreme, zeropp::half>> q;
    constexpr std::size_t n = 130;
    std::vector<std::vector<float>> last(2);
    std::vector<double> early(2), late(2);
    std::vector<char> same(2, 1);
    on_ranks(2, "10,000 steps", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::two_level(2, 1), transport);
        const auto r = at(comm.rank());
        std::vector<float> weights(n), replica(n);
        zeropp::workspace<zeropp::host_space> scratch(
            zeropp::quantized_all_gather_workspace_bytes(comm.topology(), q, n));
        for (std::uint64_t step = 0; step != 10000; ++step) {
            weights = walked(weights, step);
            const std::vector<float> shard = reference::slice_of(weights, 2, r);
            zeropp::quantized_difference_all_gather(host{}, comm, q, shard, replica, scratch.view());
            double& worst = step < 10 ? early[r] : late[r];
            for (std::size_t i = 0; i != n; ++i) {
                worst = std::max(worst, static_cast<double>(std::fabs(weights[i] - replica[i])));
            }
        }
        last[r] = replica;
    });
    CHECK(difference(last[0], last[1]) == "");
    for (const std::size_t r : {std::size_t{0}, std::size_t{1}}) {
        // A step moves an element by at most 1e-3, and the replica was off by less than what it is off now.
        CHECK(early[r] < 1e-3);
        CHECK(late[r] < 1.5e-3);
    }
}

TEST_CASE("differences: a difference that is not finite is NaN in its block alone") {
    std::vector<std::vector<float>> results(2);
    on_ranks(2, "NaN", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::two_level(1, 2), transport);
        std::vector<float> shard(256, 1.0f), replica(512, 1.0f);
        if (comm.rank() == 1) shard[130] = std::numeric_limits<float>::infinity();
        zeropp::quantized_difference_all_gather(host{}, comm, int4, shard, replica);
        results[at(comm.rank())] = replica;
    });
    for (const auto& replica : results) {
        for (std::size_t i = 0; i != replica.size(); ++i) {
            REQUIRE((std::isnan(replica[i]) == (i >= 384) && (i >= 384 || replica[i] == 1.0f)));
        }
    }
}

TEST_CASE("differences: a shard of the wrong size is refused by all ranks") {
    const auto errors = errors_on_ranks(2, "wrong shard", [](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::flat(2), transport);
        std::vector<float> shard(7), replica(10);
        zeropp::quantized_difference_all_gather(host{}, comm, int4, shard, replica);
    });
    for (const std::string& error : errors) {
        CHECK(error == "quantized_difference_all_gather: expected a shard of 5 elements of 10, given one of 7");
    }
}

TEST_CASE("differences: a shard inside the replica, which would never differ from it, is refused") {
    const auto errors = errors_on_ranks(2, "a shard in place", [](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::flat(2), transport);
        std::vector<float> replica(10);
        const zeropp::host_view<float> shard(replica.data() + 5 * comm.rank(), 5);
        zeropp::quantized_difference_all_gather(host{}, comm, int4, shard, replica);
    });
    for (const std::string& error : errors) {
        CHECK(error == "quantized_difference_all_gather: expected a shard apart from the replica, given one that "
                       "overlaps it");
    }
}
