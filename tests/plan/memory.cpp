/// \file
/// The memory that a plan predicts is what the library asks for: workspaces, secondary partitions, residuals; and what
/// the sources say of the model's states.

#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/step.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/two_level.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr zeropp::block_integer<8, 256> int8;
constexpr zeropp::block_integer<4, 128, zeropp::symmetric, zeropp::half> int4;
constexpr zeropp::cast_to<zeropp::bfloat16> bf16;

const std::vector<zeropp::two_level> topologies{{1, 1},
                                                {1, 4},
                                                {4, 1},
                                                {2, 2},
                                                {3, 4},
                                                {5, 3},
                                                zeropp::two_level::of_nodes({1, 7}),
                                                zeropp::two_level::of_nodes({3, 5, 2})};
const std::vector<std::size_t> sizes{0, 1, 17, 1000, 4099, 100'003, 3'000'017};

template <class Storage>
void check_residuals() {
    using memory = zeropp::error_feedback<
        zeropp::hops<zeropp::block_integer<8, 256>, zeropp::block_integer<4, 128, zeropp::symmetric, zeropp::half>>,
        Storage, zeropp::host_space>;
    const zeropp::wire_format intra_node = zeropp::wire_format_of(typename memory::template storage_at<0>{});
    const zeropp::wire_format inter_node = zeropp::wire_format_of(typename memory::template storage_at<1>{});
    for (const zeropp::two_level& ranks : topologies) {
        std::size_t all = 0;
        for (const std::size_t n : sizes) all += memory::storage_bytes(ranks, n);
        CHECK(zeropp::residuals_memory(ranks, sizes, {intra_node, inter_node}) == all);
    }
}

}  // namespace

TEST_CASE("planned memory: workspaces are those that the collectives ask for") {
    for (const zeropp::two_level& ranks : topologies) {
        for (const std::size_t n : sizes) {
            INFO(n << " elements on " << ranks.groups() << " x " << ranks.group_size(0));
            CHECK(zeropp::secondary_gather_workspace({ranks.group_size(0), zeropp::wire_format_of(int8)}, n) ==
                  zeropp::secondary_partition_gather_workspace_bytes(ranks.group_size(0), int8, n));
            for (const int chunks : {1, 2, 5, 1000, zeropp::auto_chunks}) {
                CHECK(zeropp::update_gather_workspace(ranks, zeropp::wire_format_of(int4), zeropp::wire_format_of(bf16),
                                                      n, chunks) ==
                      zeropp::quantized_update_gather_workspace_bytes(ranks, int4, bf16, n, {.chunks = chunks}));
                CHECK(zeropp::all_gather_workspace(ranks, zeropp::wire_format_of(int8), n, chunks) ==
                      zeropp::quantized_all_gather_workspace_bytes(ranks, int8, n, {.chunks = chunks}));
                CHECK(zeropp::reduce_scatter_workspace(
                          ranks, {zeropp::wire_format_of(int8), zeropp::wire_format_of(int4)}, n, chunks) ==
                      zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(ranks, zeropp::hops{int8, int4}, n,
                                                                                    {.chunks = chunks}));
            }
        }
    }
}

TEST_CASE("planned memory: the secondary partition is the storage that it asks for") {
    using zeropp::host_space;
    for (const int k : {1, 2, 8, 13}) {
        std::size_t in_int8 = 0, in_bf16 = 0;
        for (const std::size_t n : sizes) {
            in_int8 +=
                zeropp::secondary_partition<zeropp::block_integer<8, 256>, host_space>::storage_bytes(int8, n, k);
            in_bf16 +=
                zeropp::secondary_partition<zeropp::cast_to<zeropp::bfloat16>, host_space>::storage_bytes(bf16, n, k);
        }
        CHECK(zeropp::secondary_memory(sizes, {k, zeropp::wire_format_of(int8)}) == in_int8);
        CHECK(zeropp::secondary_memory(sizes, {k, zeropp::wire_format_of(bf16)}) == in_bf16);
    }
}

TEST_CASE("planned memory: what nodes keep for differences is the storage that it asks for") {
    using replica = zeropp::secondary_replica<zeropp::cast_to<zeropp::bfloat16>, zeropp::host_space>;
    for (const zeropp::two_level& ranks : topologies) {
        std::size_t all = 0;
        for (const std::size_t n : sizes) all += replica::storage_bytes(ranks, n);
        CHECK(zeropp::replica_memory(ranks, sizes, zeropp::wire_format_of(bf16)) == all);
    }
}

TEST_CASE("planned memory: residuals are the storage that error feedback asks for") {
    check_residuals<zeropp::residuals_in_int8>();
    check_residuals<zeropp::residuals_in_bf16>();
}

TEST_CASE("planned memory: states are those of the rank that holds the most") {
    const std::array<std::size_t, 2> tensors{10, 7};
    CHECK(zeropp::memory_of_states(tensors, 1) == zeropp::states_memory{34, 34, 17 * 12});
    // 3 of the 10, and 2 of the 7.
    CHECK(zeropp::memory_of_states(tensors, 4) == zeropp::states_memory{10, 10, 5 * 12});
    CHECK(zeropp::memory_of_states(tensors, 4, {4, 2, 8}) == zeropp::states_memory{20, 10, 40});
    CHECK(zeropp::memory_of_states(tensors, 4, {4, 2, 8}).total() == 70);
}

TEST_CASE("plans refuse ranks, groups and steps that cannot be, in words") {
    const zeropp::two_level ranks(2, 2);
    const std::array<std::size_t, 1> tensors{100};
    const zeropp::wire_format plain = zeropp::wire_format_of(bf16);
    const auto local = [&](int islands, int every, int delay) {
        return zeropp::local_steps{.islands = islands, .every = every, .delay = delay, .differences = plain};
    };
    const zeropp::machine m{{1e9, 0}, {1e9, 0}, 0};
    const zeropp::step_options options{
        .weights = plain, .gradients = {plain, plain}, .secondary = zeropp::secondary_options{0, plain}};
    using call = std::function<void()>;
    const std::vector<std::pair<std::string, call>> refused{
        {"volume: expected a rank from 0 to 3, given 4", [&] { all_gather_volume(ranks, plain, 100, 1, 4); }},
        {"volume: expected a rank from 0 to 3, given 4",
         [&] { all_reduce_volume(ranks, {plain, plain}, plain, 0, 1, 4); }},
        {"volume: expected a rank from 0 to 3, given -1",
         [&] { reduce_scatter_volume(ranks, {plain, plain}, 100, 1, -1); }},
        {"volume: expected a rank from 0 to 3, given 4", [&] { secondary_gather_volume(ranks, 2, plain, 100, 4); }},
        {"volume: expected a rank from 0 to 3, given -1", [&] { mirror_volume(ranks, tensors, plain, -1); }},
        {"local_steps: expected at least 1 island, given 0", [&] { outer_step_volume(ranks, local(0, 1, 0), 100); }},
        {"local_steps: expected at least 1 island, given -3", [&] { outer_memory(ranks, tensors, local(-3, 1, 0)); }},
        {"local_steps: expected at least 1 step between exchanges, given 0",
         [&] { zeropp::local_steps_seconds({}, local(2, 0, 0), 1); }},
        {"local_steps: expected a delay from 0 to 3 steps, given 4",
         [&] { outer_step_time(m, {1, 0}, ranks, tensors, local(2, 4, 4)); }},
        {"memory_of_states: expected at least 1 rank, given 0", [&] { zeropp::memory_of_states(tensors, 0); }},
        {"secondary group size: expected at least 1 rank, given 0",
         [&] { zeropp::secondary_memory(tensors, {0, plain}); }},
        {"secondary group size: expected at least 1 rank, given -1",
         [&] { zeropp::secondary_gather_workspace({zeropp::whole_nodes, plain}, 100); }},
        {"secondary group size: expected at least 1 rank, given 0", [&] { scratch_memory(ranks, tensors, options); }},
        {"scratch_memory: expected at least 0 tensors of whole weights, given -1",
         [&] { scratch_memory(ranks, tensors, options, {}, -1); }}};
    for (const auto& [words, ask] : refused) CHECK(zeropp_test::thrown<zeropp::precondition_error>(ask) == words);
    // The largest number of islands whose ranks have an int each.
    CHECK(outer_memory(zeropp::flat(1), tensors, local(std::numeric_limits<int>::max(), 1, 0)) == 1200);
}

TEST_CASE("planned memory: scratch is the largest tensor's weights, gradient and workspaces") {
    const zeropp::two_level ranks(2, 2);
    const std::array<std::size_t, 3> tensors{500, 4096, 1000};
    const zeropp::wire_format plain = zeropp::wire_format_of(bf16);
    const zeropp::step_options zero3{.weights = plain, .gradients = {plain, plain}};
    // 1024 elements for each rank: 4 messages of 2048 bytes to gather; 4 inside and 2 across, twice, to reduce.
    const std::uint64_t gather = 4 * 2048, reduce = 2 * (4 + 2) * 2048;
    CHECK(zeropp::scratch_memory(ranks, tensors, zero3) == 4096 * (2 * 2 + 2) + gather + reduce);
    CHECK(zeropp::scratch_memory(ranks, tensors, zero3, {4, 2, 0}, 1) == 4096 * (4 + 2) + gather + reduce);
    zeropp::step_options hpz = zero3;
    hpz.secondary = zeropp::secondary_options{2, zeropp::wire_format_of(zeropp::cast_to<float>{})};
    CHECK(zeropp::scratch_memory(ranks, tensors, hpz) == 4096 * (2 * 2 + 2) + 4 * 4096 + reduce);
}
