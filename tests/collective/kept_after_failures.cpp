/// \file
/// A transport or a quantizer that throws on one rank: nobody hangs, and what outlives the call is in the state that
/// its page promises.

#include "collective/ranks.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_replica.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/residual_storage.hpp>

#include <memory>
#include <stdexcept>

using namespace collective_test;

namespace {

constexpr std::size_t n = 1003;
constexpr int failing_rank = 1;

/// A quantizer of a user's own that may be unable to say its name.
struct nameless : zeropp::block_integer<8, 64> {
    static inline thread_local bool throws = false;
    static zeropp::short_text name() {
        if (throws) throw std::runtime_error("no name");
        return "nameless";
    }
};

/// A transport of a user's own whose network fails: after `granted` operations, in the operation's turn.
struct failing_transport {
    zeropp::thread_transport inner;
    std::shared_ptr<int> granted;

    int rank() const { return inner.rank(); }
    int size() const { return inner.size(); }
    template <class Exec>
    void all_gather(const Exec& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        count_down(exec);
        inner.all_gather(exec, send, recv, bytes);
    }
    template <class Exec>
    void all_to_all(const Exec& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        count_down(exec);
        inner.all_to_all(exec, send, recv, bytes);
    }
    failing_transport split(std::span<const int> members) { return {inner.split(members), granted}; }

private:
    template <class Exec>
    void count_down(const Exec& exec) const {
        exec.enqueue([left = granted] {
            if ((*left)-- == 0) throw zeropp::error("a link is down");
        });
    }
};

constexpr int never = -1;
constexpr zeropp::reduce_options in_chunks{.chunks = 2};
using memory_type =
    zeropp::error_feedback<zeropp::hops<nameless, nameless>, zeropp::residuals_in_int8, zeropp::host_space>;

/// One rank's residuals, which outlive transports.
struct feedback_of_rank {
    explicit feedback_of_rank(const node_map& map)
        : storage(memory_type::storage_bytes(map.topology(), n)), memory(map.topology(), n, storage.view()) {}

    std::vector<std::byte> residuals() const {
        const auto bytes = memory.residuals();
        return {bytes.data(), bytes.data() + bytes.size()};
    }

    zeropp::workspace<zeropp::host_space> storage;
    memory_type memory;
};

/// A reduce-scatter with feedback on all ranks, the transport of one failing after `granted` operations. Returns the
/// shards, and what was thrown in the end.
template <class Execution>
std::pair<std::vector<std::vector<float>>, std::string> reduce(const node_map& map,
                                                               std::vector<std::unique_ptr<feedback_of_rank>>& feedback,
                                                               std::uint64_t step, int granted = never) {
    std::vector<std::vector<float>> shards(at(map.ranks()));
    const std::string error = zeropp_test::thrown<zeropp::error>([&] {
        const std::string what = std::to_string(granted) + " operations on " + map.name;
        on_ranks(map.ranks(), what, [&](zeropp::thread_transport& transport) {
            const auto r = at(transport.rank());
            const auto left = std::make_shared<int>(transport.rank() == failing_rank ? granted : never);
            zeropp::communicator comm(map.topology(), failing_transport{transport, left});
            const auto full = tensor_of(n, reference::fp32, 10 * step + r + 1);
            zeropp::workspace<zeropp::host_space> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
                comm.topology(), zeropp::hops{nameless{}, nameless{}}, n, in_chunks));
            shards[r].resize(zeropp::partition(n, comm.size()).size(comm.rank()));
            const Execution exec;
            zeropp::hierarchical_quantized_reduce_scatter(
                exec, comm, zeropp::with_error_feedback(zeropp::hops{nameless{}, nameless{}}, feedback[r]->memory),
                full, shards[r], in_chunks, scratch.view());
            exec.wait();
        });
    });
    return {shards, error};
}

std::vector<std::unique_ptr<feedback_of_rank>> feedback_on(const node_map& map) {
    std::vector<std::unique_ptr<feedback_of_rank>> all;
    for (int r = 0; r != map.ranks(); ++r) all.push_back(std::make_unique<feedback_of_rank>(map));
    return all;
}

}  // namespace

TEMPLATE_TEST_CASE("error feedback goes on after a link that fails, wherever it does, when it is reset", "",
                   zeropp::host, zeropp::host_queue) {
    const node_map& map = node_maps()[2];
    auto fresh = feedback_on(map);
    const auto expected = reduce<zeropp::host>(map, fresh, 2).first;
    int failures = 0;
    for (int granted = 0;; ++granted) {
        INFO(granted << " operations");
        auto tried = feedback_on(map);
        reduce<zeropp::host>(map, tried, 1);
        const std::string error = reduce<TestType>(map, tried, 2, granted).second;
        if (error == "<nothing thrown>") break;
        CHECK(error == "a link is down");
        ++failures;
        for (auto& f : tried) f->memory.reset();
        const auto given = reduce<zeropp::host>(map, tried, 2).first;
        for (std::size_t r = 0; r != 4; ++r) CHECK(difference(given[r], expected[r]) == "");
    }
    CHECK(failures == 4);  // two chunks, two hops
}

TEST_CASE("a quantizer that throws before any message leaves feedback as it was") {
    const node_map& map = node_maps()[0];
    auto feedback = feedback_on(map);
    reduce<zeropp::host>(map, feedback, 1);
    const std::uint64_t uses = feedback[0]->memory.uses();
    const auto residuals = feedback[0]->residuals();
    const auto scatter = [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(map.topology(), failing_transport{transport, std::make_shared<int>(never)});
        const std::vector<float> full = tensor_of(n, reference::fp32, 4);
        std::vector<float> shard(n);
        nameless::throws = true;
        zeropp::hierarchical_quantized_reduce_scatter(
            zeropp::host{}, comm,
            zeropp::with_error_feedback(zeropp::hops{nameless{}, nameless{}}, feedback[0]->memory), full, shard);
    };
    CHECK(zeropp_test::thrown<std::runtime_error>([&] { on_ranks(1, "a quantizer that throws", scatter); }) ==
          "no name");
    CHECK(feedback[0]->memory.uses() == uses);
    CHECK((feedback[0]->residuals() == residuals));
}

TEMPLATE_TEST_CASE("a replica has no version on ranks whose update throws, on a queue too", "", zeropp::host,
                   zeropp::host_queue) {
    const node_map& map = node_maps()[2];
    std::vector<char> threw(at(map.ranks())), versioned(at(map.ranks()));
    const auto update = [&](zeropp::thread_transport& transport) {
        const auto r = at(transport.rank());
        const auto left = std::make_shared<int>(transport.rank() == failing_rank ? 0 : never);
        zeropp::communicator comm(map.topology(), failing_transport{transport, left});
        using replica_type = zeropp::secondary_replica<zeropp::cast_to<float>, zeropp::host_space>;
        zeropp::workspace<zeropp::host_space> storage(replica_type::storage_bytes(comm.topology(), n));
        replica_type replica(comm.topology(), comm.rank(), n, storage.view());
        const TestType exec;
        try {
            const std::vector<float> shard(zeropp::partition(n, comm.size()).size(comm.rank()));
            zeropp::quantized_update(exec, comm, nameless{}, shard, replica.to(1));
        } catch (...) {
            threw[r] = true;
            versioned[r] = replica.version().has_value();
            throw;
        }
    };
    CHECK(zeropp_test::thrown<zeropp::error>([&] { on_ranks(map.ranks(), "an update that throws", update); }) ==
          "a link is down");
    CHECK(threw[at(failing_rank)]);
    CHECK(versioned == std::vector<char>(at(map.ranks())));
}
