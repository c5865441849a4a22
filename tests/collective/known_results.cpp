/// \file
/// The written-down results: the reference's, and those of ranks on threads.

#include "collective/known_results.hpp"
#include "support/catch.hpp"
#include "support/host_targets.hpp"

using namespace collective_test;

TEST_CASE("known results: of the reference") {
    for (const auto& [ranks, expected] : known::results()) {
        std::vector<std::vector<float>> fulls;
        for (int r = 0; r != ranks; ++r) fulls.push_back(known::tensor(r));
        known::result given{
            known::fingerprint(reference::gathered(fulls[0], at(ranks), described(known::intra_node), reference::fp32)),
            0};
        for (std::size_t r = 0; r != at(ranks); ++r) {
            const std::vector<float> reduced =
                reference::reduce_scattered(known::nodes(ranks).node_of_rank, fulls, r, described(known::intra_node),
                                            described(known::inter_node), true, {}, reference::fp32);
            given.shards += (r + 1) * known::fingerprint(reduced);
        }
        INFO(ranks << " ranks: 0x" << std::hex << given.full << "u, 0x" << given.shards << "u");
        CHECK(given.full == expected.full);
        CHECK(given.shards == expected.shards);
    }
}

TEST_CASE("known results: of ranks on threads, with each instruction set") {
    zeropp_test::on_every_target([] {
        for (const auto& [ranks, expected] : known::results()) {
            std::vector<known::result> given(at(ranks));
            on_ranks(ranks, "known results", [&](zeropp::thread_transport& transport) {
                given[at(transport.rank())] = known::of_library(transport);
            });
            INFO(ranks << " ranks");
            std::uint64_t shards = 0;
            for (const known::result& g : given) {
                CHECK(g.full == expected.full);
                shards += g.shards;
            }
            CHECK(shards == expected.shards);
        }
    });
}
