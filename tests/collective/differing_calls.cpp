/// \file
/// Collectives on `checked` transports: ranks that disagree all get the same error, and none hangs.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/transport/checked.hpp>

using namespace collective_test;
using zeropp::host;

namespace {

constexpr zeropp::block_integer<8, 256> int8;
constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;
using checked_communicator = zeropp::communicator<zeropp::two_level, zeropp::checked<zeropp::thread_transport>>;

/// Runs odd(comm) on rank 2 and even(comm) on the others of 2 x 2: the one error that all ranks get.
template <class Even, class Odd>
std::string error_of(Even even, Odd odd) {
    const auto errors = errors_on_ranks(4, "ranks that disagree", [&](zeropp::thread_transport& transport) {
        checked_communicator comm(zeropp::two_level(2, 2), zeropp::checked(transport));
        comm.rank() == 2 ? odd(comm) : even(comm);
    });
    for (const std::string& e : errors) {
        if (e != errors[0]) return "not the same error: " + e + " / " + errors[0];
    }
    return errors[0];
}

template <class T, class Q>
auto gather(std::size_t n, const Q& q) {
    return [n, q](auto& comm) {
        std::vector<T> full(n);
        const std::vector<T> shard(zeropp::partition(n, comm.size()).size(comm.rank()));
        zeropp::quantized_all_gather(host{}, comm, q, shard, full);
    };
}

auto reduce(std::size_t n, const zeropp::reduce_options& options) {
    return [n, options](auto& comm) {
        const std::vector<float> full(n);
        std::vector<float> shard(zeropp::partition(n, comm.size()).size(comm.rank()));
        zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{int8, int4}, full, shard, options);
    };
}

/// An update of as long a description as there is: of a long list, by one group, to a late version.
auto update(int chunks) {
    return [chunks](auto& comm) {
        const zeropp::shard_owners owners(comm.topology(), 1);
        std::vector<float> elements(200);
        std::vector<zeropp::list_tensor<float, zeropp::host_space>> tensors, none;
        for (float& x : elements) {
            tensors.emplace_back(std::span(&x, 1));
            none.emplace_back(std::span(&x, owners.size() > 1 && comm.rank() == 0 ? 1u : 0u));
        }
        const zeropp::tensor_list<float> full(owners, tensors), shard(none);
        using replica_type = zeropp::secondary_replica<zeropp::cast_to<float>, zeropp::host_space>;
        std::vector<std::byte> storage(replica_type::storage_bytes(owners, full));
        replica_type replica(owners, comm.rank(), full, storage);
        zeropp::quantized_update(host{}, comm, int8, shard, replica.to(10'000'000'000'000'000'000u),
                                 {.chunks = chunks});
    };
}

bool mentions(const std::string& text, const std::string& first, const std::string& second) {
    INFO(text);
    CHECK(text.find("checked: expected the same call on every rank, given") == 0);
    CHECK(text.find(first + " on rank 1") != std::string::npos);
    CHECK(text.find(second + " on rank 2") != std::string::npos);
    return text.find("on rank 3") != std::string::npos;
}

}  // namespace

TEST_CASE("checked collectives: ranks that agree get their result") {
    REQUIRE(error_of(gather<float>(100, int8), gather<float>(100, int8)) == "");
    REQUIRE(error_of(reduce(100, {}), reduce(100, {})) == "");
}

TEST_CASE("checked all-gather: another size, quantizer or element on one rank") {
    const std::string base = "quantized_all_gather of 100 elements of fp32 with int8:256";
    REQUIRE(mentions(error_of(gather<float>(100, int8), gather<float>(104, int8)), base,
                     "quantized_all_gather of 104 elements of fp32 with int8:256"));
    REQUIRE(mentions(error_of(gather<float>(100, int8), gather<float>(0, int8)), base,
                     "quantized_all_gather of 0 elements of fp32 with int8:256"));
    REQUIRE(mentions(error_of(gather<float>(100, int8), gather<float>(100, int4)), base,
                     "quantized_all_gather of 100 elements of fp32 with int4:128:signed:fp16"));
    REQUIRE(mentions(error_of(gather<float>(100, int8), gather<zeropp::half>(100, int8)), base,
                     "quantized_all_gather of 100 elements of fp16 with int8:256"));
}

TEST_CASE("checked collectives: another topology on one rank") {
    const auto errors = errors_on_ranks(4, "another topology", [](zeropp::thread_transport& transport) {
        // Splits have equal lists on both: a node of four ranks, and four nodes.
        using zeropp::two_level;
        checked_communicator comm(transport.rank() == 2 ? two_level(4, 1) : two_level(1, 4),
                                  zeropp::checked(transport));
        gather<float>(100, int8)(comm);
    });
    const std::string base = "quantized_all_gather of 100 elements of fp32 with int8:256, over a topology with digest ";
    REQUIRE(mentions(errors[0], base + std::to_string(zeropp::topology_digest(zeropp::two_level(1, 4))),
                     base + std::to_string(zeropp::topology_digest(zeropp::two_level(4, 1)))));
}

TEST_CASE("checked reduce-scatter: other options, or another collective, on one rank") {
    const std::string base =
        "hierarchical_quantized_reduce_scatter of 100 elements of fp32 with int8:256 + int4:128:signed:fp16, ";
    using zeropp::reduction;
    REQUIRE(mentions(error_of(reduce(100, {}), reduce(100, {.operation = reduction::mean})), base + "sum in 1 chunk",
                     base + "mean in 1 chunk"));
    REQUIRE(mentions(error_of(reduce(100, {.chunks = 2}), reduce(100, {.chunks = 3})), base + "sum in 2 chunks",
                     base + "sum in 3 chunks"));
    REQUIRE(mentions(error_of(reduce(100, {}), reduce(100, {.accumulate = true})), base + "sum in 1 chunk",
                     base + "sum in 1 chunk, accumulated"));
    REQUIRE(mentions(error_of(reduce(100, {}), gather<float>(100, int8)), base + "sum in 1 chunk",
                     "quantized_all_gather of 100 elements of fp32 with int8:256"));
}

TEST_CASE("checked collectives: options in words tell options apart") {
    using zeropp::reduction;
    REQUIRE(zeropp::reduce_options{}.text(1).str() == "sum in 1 chunk");
    REQUIRE(zeropp::reduce_options{reduction::mean, 12, true}.text(12).str() == "mean in 12 chunks, accumulated");
    REQUIRE(zeropp::reduce_options{reduction::sum, -3, false}.text(-3).str() == "sum in 0 chunks");
}

TEST_CASE("checked collectives: one rank's own mistake is every rank's error") {
    const auto wrong_shard = [](auto& comm) {
        std::vector<float> full(100), shard(24);
        zeropp::quantized_all_gather(host{}, comm, int8, shard, full);
    };
    REQUIRE(error_of(gather<float>(100, int8), wrong_shard) ==
            "quantized_all_gather: on rank 2, expected a shard of 25 elements of 100, given one of 24");
    const auto little_workspace = [](auto& comm) {
        const std::vector<float> full(100);
        std::vector<float> shard(25);
        std::vector<std::byte> scratch(16);
        zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{int8, int4}, full, shard, {}, scratch);
    };
    REQUIRE(error_of(reduce(100, {}), little_workspace).find("on rank 2, expected a workspace of at least") !=
            std::string::npos);
    REQUIRE(error_of(reduce(100, {}), reduce(100, {.chunks = 0})) ==
            "hierarchical_quantized_reduce_scatter: on rank 2, expected at least 1 chunk, given 0");
}

TEST_CASE("checked secondary: ranks at different versions get an error") {
    // Each rank stores and reads consistently; only together are they wrong.
    const auto pass = [](std::uint64_t version) {
        return [=](auto& comm) {
            using secondary_type = zeropp::secondary_partition<zeropp::cast_to<float>, zeropp::host_space>;
            zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes({}, 100, 2));
            secondary_type secondary({}, 100, 2, comm.index(), storage.view());
            std::vector<float> full(100);
            secondary.store(host{}, full, version);
            // Ranks 0 and 1 are of another node and know nothing of what goes wrong on this one.
            if (comm.group_id() == 1) zeropp::secondary_partition_gather(host{}, comm, secondary, version, full);
        };
    };
    REQUIRE(error_of(pass(7), pass(7)) == "");
    const auto errors = errors_on_ranks(4, "ranks at different versions", [&](zeropp::thread_transport& transport) {
        checked_communicator comm(zeropp::two_level(2, 2), zeropp::checked(transport));
        pass(comm.rank() == 2 ? 8 : 7)(comm);
    });
    REQUIRE(errors[0] == "");
    REQUIRE(errors[1] == "");
    REQUIRE(errors[2] == errors[3]);
    REQUIRE(errors[2] ==
            "checked: expected the same call on every rank, given secondary_partition_gather of 100 elements "
            "of fp32 with fp32, version 8 on rank 0; secondary_partition_gather of 100 elements of fp32 with "
            "fp32, version 7 on rank 1");
}

TEST_CASE("checked collectives: after a disagreement the communicator works") {
    const auto errors = errors_on_ranks(4, "after a disagreement", [&](zeropp::thread_transport& transport) {
        checked_communicator comm(zeropp::two_level(2, 2), zeropp::checked(transport));
        bool refused = false;
        try {
            gather<float>(comm.rank() == 0 ? 100u : 104u, int8)(comm);
        } catch (const zeropp::precondition_error&) {
            refused = true;
        }
        if (!refused) throw zeropp::error("ranks that disagree got a result");
        gather<float>(104, int8)(comm);
        reduce(104, {})(comm);
    });
    for (const std::string& e : errors) REQUIRE(e == "");
}

TEST_CASE("checked updates: another number of chunks on one rank, behind all that a call says") {
    REQUIRE(error_of(update(4), update(4)) == "");
    const std::string text = error_of(update(4), update(8));
    INFO(text);
    CHECK(text.find("version 10000000000000000000, 1 of 2 groups own shards, a list of 200 tensors") !=
          std::string::npos);
    CHECK(text.find(", in 4 chunks on rank 1") != std::string::npos);
    CHECK(text.find(", in 8 chunks on rank 2") != std::string::npos);
}
