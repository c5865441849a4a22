/// \file
/// Updates of what some groups own and others hold: trainers that own slices, and ranks that serve what they train.
/// What does not fit is refused, everywhere alike.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/checked.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace collective_test;
using zeropp::host;

namespace {

using replica_type = zeropp::secondary_replica<zeropp::cast_to<float>, zeropp::host_space>;
constexpr zeropp::block_integer<8, 64> int8;
constexpr std::size_t n = 21;  // slices of 11 and 10 where one group of two owns, of 6, 6, 6 and 3 where two do

/// A transport without broadcast, as a user's own may be.
struct plain_transport {
    zeropp::thread_transport inner;
    int rank() const { return inner.rank(); }
    int size() const { return inner.size(); }
    void all_gather(const host& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        inner.all_gather(exec, send, recv, bytes);
    }
    void all_to_all(const host& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        inner.all_to_all(exec, send, recv, bytes);
    }
    plain_transport split(std::span<const int> members) { return {inner.split(members)}; }
};

std::size_t own_size(const zeropp::shard_owners& owners, int rank) {
    return rank < owners.size() ? zeropp::partition(n, owners.size()).size(rank) : 0;
}

/// One rank of 3 nodes of 2, whose replica is of what the first `owners` nodes own.
struct rank_of_six {
    explicit rank_of_six(int first_groups) : owners(nodes, first_groups) {}
    zeropp::two_level nodes{3, 2};
    zeropp::shard_owners owners;
    zeropp::workspace<zeropp::host_space> storage{replica_type::storage_bytes(owners, n)};

    replica_type replica(int rank) { return {owners, rank, n, storage.view()}; }
    std::vector<float> shard(int rank) const { return std::vector<float>(own_size(owners, rank), 1.0f); }
};

/// What all six ranks throw, if they throw the same.
template <class Work>
std::string error_on_six(Work work) {
    const auto errors = errors_on_ranks(6, "updates of owners", work);
    for (const std::string& error : errors) CHECK(error == errors[0]);
    return errors[0];
}

}  // namespace

TEST_CASE(
    "owners: a shard of a rank that owns nothing, and a missing one of a rank that does, are refused on all ranks") {
    const auto refused = [](int first_groups, int wrong_rank, std::size_t given) {
        return error_on_six([&](zeropp::thread_transport& transport) {
            rank_of_six me(first_groups);
            zeropp::communicator comm(me.nodes, zeropp::checked(transport));
            auto replica = me.replica(comm.rank());
            std::vector<float> shard = me.shard(comm.rank());
            if (comm.rank() == wrong_rank) shard.resize(given);
            zeropp::quantized_update(host{}, comm, int8, shard, replica.to(1));
        });
    };
    CHECK(
        refused(1, 2, 11) ==
        "quantized_update: on rank 2, expected an empty shard, since this rank's group owns no shards, given one of 11 "
        "elements");
    CHECK(
        refused(2, 5, 1) ==
        "quantized_update: on rank 5, expected an empty shard, since this rank's group owns no shards, given one of 1 "
        "elements");
    CHECK(refused(2, 3, 0) == "quantized_update: on rank 3, expected a shard of 3 elements of 21, given one of 0");
    CHECK(refused(1, -1, 0) == "");
}

TEST_CASE("owners: ranks that differ in who owns slices are told so on all ranks, whatever they call") {
    const std::string others = "1 of 3 groups own shards";
    const auto differing = [&](auto call) {
        return error_on_six([&](zeropp::thread_transport& transport) {
            rank_of_six me(transport.rank() == 4 ? 1 : 2);
            zeropp::communicator comm(me.nodes, zeropp::checked(transport));
            auto replica = me.replica(comm.rank());
            call(comm, me.shard(comm.rank()), replica);
        });
    };
    for (const std::string& error : {differing([](auto& comm, const auto& shard, auto& replica) {
                                         zeropp::quantized_update(host{}, comm, int8, shard, replica.to(1));
                                     }),
                                     differing([](auto& comm, const auto& shard, auto& replica) {
                                         std::vector<float> full(n);
                                         zeropp::quantized_update(host{}, comm, int8, shard, replica.to(1, full));
                                     })}) {
        INFO(error);
        CHECK(error.starts_with("checked: expected the same call on every rank, given "));
        CHECK(error.find("2 of 3 groups own shards on rank 3; ") != std::string::npos);
        CHECK(error.find(others + " on rank 4; ") != std::string::npos);
    }
    // Inside a node, too.
    const auto errors = errors_on_ranks(6, "a gather of owners", [&](zeropp::thread_transport& transport) {
        rank_of_six me(transport.rank() == 4 ? 1 : 2);
        zeropp::communicator comm(me.nodes, zeropp::checked(transport));
        auto replica = me.replica(comm.rank());
        replica.stamp(1);
        std::vector<float> full(n);
        zeropp::secondary_partition_gather(host{}, comm, replica, 1, full);
    });
    CHECK(errors[0] == "");
    CHECK(errors[3] == "");
    CHECK(errors[4].find(others + " on rank 0; ") != std::string::npos);
    CHECK(errors[5] == errors[4]);
}

TEST_CASE("owners: a transport that cannot broadcast serves where all own, and says so where not all do") {
    const auto update = [](auto transport, int first_groups) {
        rank_of_six me(first_groups);
        zeropp::communicator comm(me.nodes, std::move(transport));
        auto replica = me.replica(comm.rank());
        const std::vector<float> shard = me.shard(comm.rank());
        zeropp::quantized_update(host{}, comm, int8, shard, replica.to(1));
        zeropp::quantized_update(host{}, comm, int8, shard, replica.to(2));
    };
    const std::string error =
        "quantized_update: expected a transport that can broadcast, since 1 of 3 groups own shards, "
        "given one that cannot";
    CHECK(error_on_six([&](auto& threads) { update(plain_transport{threads}, 3); }) == "");
    CHECK(error_on_six([&](auto& threads) { update(plain_transport{threads}, 1); }) == error);
    using any = zeropp::any_transport<host>;
    CHECK(error_on_six([&](auto& threads) { update(any(threads), 1); }) == "");
    CHECK(error_on_six([&](auto& threads) { update(any(plain_transport{threads}), 3); }) == "");
    CHECK(error_on_six([&](auto& threads) { update(any(plain_transport{threads}), 1); }) == error);
    CHECK(error_on_six([&](auto& threads) { update(zeropp::checked(any(plain_transport{threads})), 1); }) ==
          "quantized_update: on rank 0, " + error.substr(error.find("expected")));
    // All are told of the transport before a rank is told of its shard, which is wrong here on one of them.
    CHECK(error_on_six([&](auto& threads) {
              rank_of_six me(2);
              zeropp::communicator comm(me.nodes, plain_transport{threads});
              auto replica = me.replica(comm.rank());
              std::vector<float> shard = me.shard(comm.rank());
              if (comm.rank() == 2) shard.resize(1);
              zeropp::quantized_update(host{}, comm, int8, shard, replica.to(1));
          }) == "quantized_update: expected a transport that can broadcast, since 2 of 3 groups own shards, given one "
                "that cannot");
}

TEST_CASE("owners: a holder that has missed an update is found") {
    CHECK(error_on_six([](zeropp::thread_transport& transport) {
              rank_of_six me(1);
              zeropp::communicator comm(me.nodes, zeropp::checked(transport));
              auto replica = me.replica(comm.rank());
              zeropp::quantized_update(host{}, comm, int8, me.shard(comm.rank()), replica.to(1));
              if (comm.rank() != 4) replica.stamp(2);
              zeropp::quantized_update(host{}, comm, int8, me.shard(comm.rank()), replica.to(3));
          }) == "quantized_update: on rank 4, expected a secondary replica of version 2, given one of version 1");
}

TEST_CASE("owners: lists, storage and tensors of other ranks are refused") {
    const zeropp::two_level nodes(3, 2);
    const zeropp::shard_owners owners(nodes, 2);
    std::vector<float> memory(n);
    const zeropp::tensor_list<float> over_all(nodes, {memory});
    zeropp::workspace<zeropp::host_space> storage(1 << 12);
    CHECK_THROWS_WITH(replica_type(owners, 0, over_all, storage.view()),
                      "secondary_replica: expected a list of whole tensors over 4 ranks, given one over 6");
    const zeropp::tensor_list<float> over_owners(owners, {memory});
    CHECK_NOTHROW(replica_type(owners, 5, over_owners, storage.view()));
    const std::size_t needed = replica_type::storage_bytes(owners, n);
    CHECK_THROWS_WITH(replica_type(owners, 5, n, storage.view().subview(0, needed - 1)),
                      "secondary_replica: expected a workspace of at least " + std::to_string(needed) +
                          " bytes, given " + std::to_string(needed - 1));
    CHECK(replica_type::storage_bytes(owners, n) == 2 * zeropp::wire_bytes(zeropp::cast_to<float>{}, 6));
    // Whole tensors in a list over all ranks, where a replica is of fewer, and a list of slices with something in it.
    const auto refused = [&](bool with_slice) {
        return error_on_six([&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(nodes, zeropp::checked(transport));
            std::vector<float> full(n);
            zeropp::workspace<zeropp::host_space> kept(replica_type::storage_bytes(owners, over_owners));
            replica_type replica(owners, comm.rank(), over_owners, kept.view());
            std::vector<float> slice(with_slice && comm.rank() == 4 ? 2 : own_size(owners, comm.rank()));
            const zeropp::tensor_list<float> shard({slice});
            const zeropp::tensor_list<float> whole_all(nodes, {full}), whole(owners, {full});
            zeropp::quantized_update(host{}, comm, int8, shard, replica.to(1, with_slice ? whole : whole_all));
        });
    };
    CHECK(refused(true) == "quantized_update: on rank 4, expected an empty shard, since this rank's group owns no "
                           "shards, given one of 2 elements");
    CHECK(refused(false) ==
          "quantized_update: on rank 0, expected a list of whole tensors over 4 ranks, given one over 6");
    // A rank without slices that gives an empty array where the others give lists, and the other way round.
    const auto empty_shard = [&](bool of_list) {
        return error_on_six([&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(nodes, zeropp::checked(transport));
            zeropp::workspace<zeropp::host_space> kept(replica_type::storage_bytes(owners, over_owners));
            const zeropp::tensors_shape shape = of_list ? zeropp::tensors_shape(over_owners) : zeropp::tensors_shape(n);
            replica_type replica(owners, comm.rank(), shape, kept.view());
            std::vector<float> slice(own_size(owners, comm.rank()));
            const auto update = [&](const auto& shard) {
                zeropp::quantized_update(host{}, comm, int8, shard, replica.to(1));
            };
            of_list != (comm.rank() == 4) ? update(zeropp::tensor_list<float>({slice})) : update(slice);
        });
    };
    const auto says = [](const std::string& text, const char* words) { return text.find(words) != std::string::npos; };
    CHECK(says(empty_shard(true), ": on rank 4, expected a list of 1 tensors with digest "));
    CHECK(says(empty_shard(true), ", given a tensor of 21 elements"));
    CHECK(says(empty_shard(false), ": on rank 4, expected a tensor of 21 elements, given a list of 0 tensors"));
}
