/// \file
/// quantized_all_to_all: parts reach their ranks, through the quantizer once, over one, two and three levels.

#include <zeropp/collective/quantized_all_to_all.hpp>

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/three_level.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

using namespace collective_test;

namespace {

const zeropp::block_integer<8, 64> int8;

/// The tensor that `rank` sends, of `part` elements for each of `ranks`.
std::vector<float> sent_by(std::size_t part, std::size_t ranks, std::size_t rank) {
    return tensor_of(part * ranks, reference::fp32, 1 + rank);
}

/// Part r is part `rank` of what rank r has sent, through the quantizer.
std::vector<float> expected_on(std::size_t rank, std::size_t part, std::size_t ranks) {
    const reference::quantizer q("int8:64");
    std::vector<float> all;
    for (std::size_t r = 0; r != ranks; ++r) {
        const std::vector<float> whole = sent_by(part, ranks, r);
        const auto first = whole.begin() + static_cast<std::ptrdiff_t>(part * rank);
        const auto through = q.through({first, first + static_cast<std::ptrdiff_t>(part)});
        all.insert(all.end(), through.begin(), through.end());
    }
    return all;
}

template <class Topology>
void check(const Topology& ranks) {
    const auto size = at(ranks.size());
    std::vector<std::string> found(size);
    on_ranks(ranks.size(), "an all-to-all", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(ranks, zeropp::counting(transport, ranks));
        const auto rank = at(comm.rank());
        const auto hold = [&](const std::string& what, const std::string& problem) {
            if (found[rank].empty() && !problem.empty()) found[rank] = what + ": " + problem;
        };
        std::vector<std::vector<float>> list_sent, list_received, list_expected;
        for (const std::size_t part : {0u, 1u, 3u, 64u, 117u}) {
            const std::string what = std::to_string(part) + " elements for each";
            const std::vector<float> expected = expected_on(rank, part, size);
            const std::vector<float> sent = sent_by(part, size, rank);
            guarded<float> received(part * size);
            guarded<std::byte> scratch(quantized_all_to_all_workspace_bytes(ranks, int8, part * size));
            comm.world().reset();
            quantized_all_to_all(zeropp::host(), comm, int8, sent, received.view(), scratch.view());
            hold(what, difference(received.values(), expected));
            hold(what, received.intact() && scratch.intact() ? "" : "memory");
            const zeropp::traffic total = comm.world().total();
            const zeropp::volume counted{total.intra_node_bytes, total.inter_node_bytes, total.inter_site_bytes};
            hold(what, counted == all_to_all_volume(ranks, zeropp::wire_format_of(int8), part * size) ? "" : "bytes");
            // In place, on a queue.
            std::vector<float> own = sent_by(part, size, rank);
            const zeropp::host_queue queue;
            quantized_all_to_all(queue, comm, int8, own, own);
            hold(what + ", in place", difference(own, expected));
            list_sent.push_back(sent_by(part, size, rank));
            list_received.emplace_back(part * size);
            list_expected.push_back(expected);
        }
        std::vector<zeropp::list_tensor<const float, zeropp::host_space>> from(list_sent.begin(), list_sent.end());
        std::vector<zeropp::list_tensor<float, zeropp::host_space>> to(list_received.begin(), list_received.end());
        // Messages of whole shards have room for blocks of these tensors, those of the call do not.
        from.insert(from.begin(), 9, std::span<const float>());
        to.insert(to.begin(), 9, std::span<float>());
        const zeropp::tensor_list<const float> all_sent(ranks, from);
        const zeropp::tensor_list<float> all_received(ranks, to);
        quantized_all_to_all(zeropp::host(), comm, int8, all_sent, all_received);
        for (std::size_t t = 0; t != list_sent.size(); ++t) {
            hold("tensor " + std::to_string(t) + " of a list", difference(list_received[t], list_expected[t]));
        }
    });
    for (std::size_t r = 0; r != size; ++r) {
        INFO("rank " << r << " of " << zeropp::group_sizes_text(ranks) << ", " << Topology::levels << " levels");
        CHECK(found[r] == "");
    }
}

}  // namespace

TEST_CASE("all-to-all: each part reaches its rank through the quantizer once, over any levels") {
    for (const int size : {1, 2, 5}) check(zeropp::flat(size));
    for (const auto& [nodes, of_node] : {std::array{2, 2}, {3, 2}, {2, 3}, {1, 3}, {4, 1}}) {
        check(zeropp::two_level(nodes, of_node));
    }
    const std::vector<int> dealt_out{1, 0, 1, 0, 2, 2};
    check(zeropp::two_level(std::span<const int>(dealt_out)));
    for (const auto& [sites, nodes, of_node] : {std::array{2, 2, 2}, {2, 3, 2}, {3, 2, 1}, {2, 1, 3}, {1, 2, 2}}) {
        check(zeropp::three_level(sites, nodes, of_node));
    }
}

TEST_CASE("all-to-all: parts of different sizes and nodes of different sizes are refused on every rank") {
    const auto refused = [](const zeropp::two_level& ranks, std::size_t elements, std::size_t received) {
        return errors_on_ranks(ranks.size(), "a refusal", [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(ranks, zeropp::checked(transport));
            std::vector<float> from(elements), to(received);
            quantized_all_to_all(zeropp::host(), comm, int8, from, to);
        });
    };
    const auto all = [](const zeropp::two_level& ranks, const std::string& words) {
        return std::vector<std::string>(at(ranks.size()), "quantized_all_to_all: on rank 0, " + words);
    };
    const zeropp::two_level even(2, 2), odd = zeropp::two_level::of_nodes({2, 1});
    CHECK(refused(even, 6, 6) == all(even, "expected a multiple of 4 elements, given 6"));
    CHECK(errors_on_ranks(4, "rows", [&](zeropp::thread_transport& transport) {
              zeropp::communicator comm(even, zeropp::checked(transport));
              std::vector<float> whole(8);
              const zeropp::tensor_list<float> list(even, {{whole, {.row = 4}}});
              quantized_all_to_all(zeropp::host(), comm, int8, list, list);
          }) == all(even, "of tensor 0, expected shards of 2 elements, given shards of 4"));
    CHECK(refused(even, 8, 4) == all(even, "expected a result of 8 elements, given one of 4"));
    CHECK(refused(odd, 6, 6) == all(odd, "expected nodes of equal size, given 2 groups of 2, 1 ranks"));
    CHECK_THROWS_WITH(zeropp::all_to_all_volume(odd, zeropp::wire_format_of(int8), 6),
                      "volume: expected nodes of equal size, given 2 groups of 2, 1 ranks");
}
