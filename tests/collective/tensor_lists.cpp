/// \file
/// Lists of tensors in every collective that takes them: each tensor as if it were alone, to the bit, whatever its
/// size, rows and gaps; one message for each peer and hop; and what a list refuses.

#include "collective/drawn_case.hpp"
#include "collective/drawn_list.hpp"
#include "collective/ranks.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/on_threads.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/quantizer/stochastic.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>

#include <cstddef>
#include <deque>
#include <limits>
#include <string>
#include <vector>

using namespace collective_test;
using zeropp::host;
using zeropp::host_queue;
using zeropp::list_tensor;
using zeropp::tensor_list;
using zeropp_test::expectations;
using zeropp_test::on_threads;
using zeropp_test::thrown;

namespace {

constexpr zeropp::block_integer<8, 64> int8;
constexpr zeropp::block_integer<4, 32> int4;

template <class T, class Execution, class Q>
void check_gather(int seed, const Q& q) {
    drawn_case drawn(seed);
    const std::vector<drawn_tensor> tensors = drawn_tensors(drawn.random, true);
    const auto ranks = at(drawn.map.ranks());
    const bool padded = drawn.random.below(2) == 0;
    INFO(drawn.text() << ", a list of " << tensors.size() << (padded ? ", padded" : ""));
    std::vector<std::vector<std::vector<float>>> results(ranks);
    std::vector<char> intact(ranks);
    on_ranks(drawn.map.ranks(), drawn.text(), [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(drawn.map.topology(), transport);
        const auto r = at(comm.rank());
        arrays<T> fulls, shards;
        for (std::size_t t = 0; t != tensors.size(); ++t) {
            const drawn_tensor& of = tensors[t];
            fulls.add(of.memory(ranks), of.division(ranks), (t % (16 / alignof(T))) * alignof(T));
            const auto own = narrowed<T>(of.slice_of(values_of(of, t, 0, format_of<T>), ranks, r));
            shards.add(padded ? of.slice(ranks) : own.size());
            if (!own.empty()) std::memcpy(shards.all.back().data(), own.data(), own.size() * sizeof(T));
        }
        const tensor_list<T> full(comm.topology(), fulls.tensors);
        const tensor_list<T> shard(shards.tensors);
        const zeropp::gather_options options{.chunks = drawn.chunks};
        guarded<std::byte> scratch(zeropp::quantized_all_gather_workspace_bytes(comm.topology(), q, full, options));
        const Execution first, second;
        zeropp::quantized_all_gather(zeropp::pipeline<Execution>{first, second}, comm, q, shard, full, options,
                                     scratch.view());
        first.wait();
        intact[r] = fulls.intact() && shards.intact() && scratch.intact();
        for (std::size_t t = 0; t != tensors.size(); ++t) {
            results[r].push_back(take(fulls.all[t], tensors[t], ranks));
            intact[r] = intact[r] && gaps_intact(fulls.all[t], tensors[t], ranks);
        }
    });
    for (std::size_t t = 0; t != tensors.size(); ++t) {
        INFO("tensor " << t << " of " << tensors[t].n << " in rows of " << tensors[t].row);
        const auto tensor = values_of(tensors[t], t, 0, format_of<T>);
        std::vector<float> expected;
        for (std::size_t r = 0; r != ranks; ++r) {
            for (const float x : described(q).through(tensors[t].slice_of(tensor, ranks, r))) {
                expected.push_back(static_cast<float>(format_of<T>.rounded(x)));
            }
        }
        for (std::size_t r = 0; r != ranks; ++r) {
            INFO("rank " << r);
            REQUIRE(difference(results[r][t], expected) == "");
            REQUIRE(intact[r]);
        }
    }
}

/// The reference's shard of rank r of one tensor: the slices of all ranks as tensors of equal slices.
template <class T>
std::vector<float> reduced_slice(const node_map& map, const drawn_tensor& t, std::size_t number, std::size_t r,
                                 const reference::quantizer& intra_node, const reference::quantizer& inter_node,
                                 bool mean, const reference::floating_format& element) {
    const auto ranks = at(map.ranks());
    const std::size_t n = t.size(ranks, r);
    std::vector<std::vector<float>> fulls;
    for (std::size_t from = 0; from != ranks; ++from) {
        const auto slice = t.slice_of(values_of(t, number, from, format_of<T>), ranks, r);
        std::vector<float> full(ranks * n);
        std::copy(slice.begin(), slice.end(), full.begin() + static_cast<std::ptrdiff_t>(r * n));
        fulls.push_back(full);
    }
    return reference::reduce_scattered(map.node_of_rank, fulls, r, intra_node, inter_node, mean, {}, element);
}

template <class T, class Execution, class IntraNode, class InterNode>
void check_reductions(int seed, const IntraNode& intra_node, const InterNode& inter_node) {
    drawn_case drawn(seed);
    const std::vector<drawn_tensor> tensors = drawn_tensors(drawn.random, true);
    const auto ranks = at(drawn.map.ranks());
    const bool mean = drawn.random.below(2) == 0;
    const auto operation = mean ? zeropp::reduction::mean : zeropp::reduction::sum;
    INFO(drawn.text() << ", a list of " << tensors.size() << (mean ? ", mean" : ", sum"));
    // The result of the all-reduce: full itself, or tensors with other gaps.
    const bool in_place = drawn.random.below(2) == 0;
    std::vector<drawn_tensor> reduced = tensors;
    for (drawn_tensor& t : reduced) {
        if (!in_place) t.gap = t.n != 0 && drawn.random.below(2) == 0 ? 1 + drawn.random.below(100) : 0;
    }
    std::vector<std::vector<std::vector<float>>> slices(ranks), wholes(ranks);
    std::vector<char> intact(ranks);
    on_ranks(drawn.map.ranks(), drawn.text(), [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(drawn.map.topology(), transport);
        const auto r = at(comm.rank());
        arrays<T> fulls, shards, others;
        for (std::size_t t = 0; t != tensors.size(); ++t) {
            const drawn_tensor& of = tensors[t];
            fulls.add(of.memory(ranks), of.division(ranks));
            others.add(reduced[t].memory(ranks), reduced[t].division(ranks));
            put(fulls.all.back(), of, ranks, values_of(of, t, r, format_of<T>));
            shards.add(of.size(ranks, r));
        }
        const tensor_list<T> full(comm.topology(), fulls.tensors);
        const tensor_list<T> other(comm.topology(), others.tensors);
        const tensor_list<T> shard(shards.tensors);
        const Execution first, second;
        const zeropp::pipeline<Execution> both{first, second};
        const zeropp::reduce_options reduce{.operation = operation, .chunks = drawn.chunks};
        guarded<std::byte> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
            comm.topology(), zeropp::hops{intra_node, inter_node}, full, reduce));
        zeropp::hierarchical_quantized_reduce_scatter(both, comm, zeropp::hops{intra_node, inter_node}, full, shard,
                                                      reduce, scratch.view());
        const zeropp::all_reduce_options all{
            .operation = operation, .chunks = drawn.chunks, .algorithm = zeropp::all_reduce_algorithm::two_shot};
        guarded<std::byte> more(zeropp::quantized_all_reduce_workspace_bytes(
            comm.topology(), zeropp::hops{intra_node, inter_node, intra_node}, full, all));
        zeropp::quantized_all_reduce(both, comm, zeropp::hops{intra_node, inter_node, intra_node}, full,
                                     in_place ? full : other, all, more.view());
        first.wait();
        intact[r] = fulls.intact() && others.intact() && shards.intact() && scratch.intact() && more.intact();
        for (std::size_t t = 0; t != tensors.size(); ++t) {
            slices[r].push_back(shards.all[t].values());
            guarded<T>& result = (in_place ? fulls : others).all[t];
            wholes[r].push_back(take(result, reduced[t], ranks));
            intact[r] = intact[r] && gaps_intact(result, reduced[t], ranks);
        }
    });
    for (std::size_t t = 0; t != tensors.size(); ++t) {
        INFO("tensor " << t << " of " << tensors[t].n << " in rows of " << tensors[t].row);
        std::vector<float> whole;
        for (std::size_t r = 0; r != ranks; ++r) {
            INFO("rank " << r);
            const auto of = [&](const reference::floating_format& element) {
                return reduced_slice<T>(drawn.map, tensors[t], t, r, described(intra_node), described(inter_node), mean,
                                        element);
            };
            REQUIRE(difference(slices[r][t], of(format_of<T>)) == "");
            for (const float x : described(intra_node).through(of(reference::fp32))) {
                whole.push_back(static_cast<float>(format_of<T>.rounded(x)));
            }
        }
        for (std::size_t r = 0; r != ranks; ++r) {
            INFO("rank " << r);
            REQUIRE(difference(wholes[r][t], whole) == "");
            REQUIRE(intact[r]);
        }
    }
}

template <class T>
std::vector<list_tensor<T, zeropp::host_space>> listed(std::vector<std::vector<T>>& tensors) {
    return {tensors.begin(), tensors.end()};
}

}  // namespace

TEST_CASE("lists: drawn all-gathers") {
    for (int seed = 0; seed != 80; ++seed) {
        seed % 2 == 0 ? check_gather<float, host_queue>(seed, int8) : check_gather<zeropp::half, host>(seed, int4);
    }
}

TEST_CASE("lists: drawn reductions") {
    for (int seed = 0; seed != 80; ++seed) {
        seed % 2 == 0 ? check_reductions<float, host_queue>(seed, int8, int4)
                      : check_reductions<zeropp::bfloat16, host>(seed, int4, int8);
    }
}

TEST_CASE("lists: small tensors with gaps are all-reduced into dense ones, and back") {
    on_threads(4, "other gaps", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::two_level(2, 2), zeropp::checked(transport));
        // Multiples of a power of two, which int8 keeps: the largest of a block is 127.
        std::vector<float> spread(3 * 8 + 5, -1.0f), dense(17, -1.0f);
        const auto at_slice = [](std::size_t i) { return i / 5 * 8 + i % 5; };
        for (std::size_t i = 0; i != 17; ++i) spread[at_slice(i)] = i % 5 == 0 ? 127.0f : static_cast<float>(i);
        const tensor_list<float> gaps(comm.topology(), {{spread, {.stride = 8, .elements = 17}}});
        const tensor_list<float> none(comm.topology(), {dense});
        zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, gaps, none,
                                     {.algorithm = zeropp::all_reduce_algorithm::one_shot});
        for (std::size_t i = 0; i != 17; ++i) expect(dense[i] == 4 * spread[at_slice(i)], "a sum of four");
        zeropp::quantized_all_reduce(
            host{}, comm, zeropp::hops{int8, int8, int8}, none, gaps,
            {.operation = zeropp::reduction::mean, .algorithm = zeropp::all_reduce_algorithm::one_shot});
        for (std::size_t i = 0; i != 17; ++i) expect(dense[i] == spread[at_slice(i)], "the mean of equal numbers");
        for (const std::size_t gap : {5u, 6u, 7u, 13u, 14u, 15u, 21u, 22u, 23u})
            expect(spread[gap] == -1.0f, "an intact gap");
    });
}

TEST_CASE("lists: a result that shares memory with another tensor of full is refused") {
    on_threads(2, "shared memory", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::two_level(1, 2), zeropp::checked(transport));
        std::vector<float> memory(400);
        const auto part = [&](std::size_t begin, std::size_t n) {
            return zeropp::host_view<float>(memory.data() + begin, n);
        };
        const auto refuses = [&](const tensor_list<float>& full, const tensor_list<float>& result) {
            const std::string said = thrown<zeropp::precondition_error>(
                [&] { zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, full, result); });
            expect(said.find("expected a result that is full or apart from it") != std::string::npos, said);
        };
        // An error would end the test.
        const auto takes = [&](const tensor_list<float>& full, const tensor_list<float>& result) {
            zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, full, result);
        };
        const auto list = [&](std::initializer_list<list_tensor<float, zeropp::host_space>> tensors) {
            return tensor_list<float>(comm.topology(), tensors);
        };
        const auto a = part(0, 100), b = part(100, 100), c = part(200, 100), d = part(300, 100);
        refuses(list({a, b}), list({b, a}));
        refuses(list({a, b}), list({c, a}));
        refuses(list({a, b}), list({part(1, 100), d}));
        refuses(list({a, b}), list({c, part(199, 100)}));
        // In place, a chunk of the sum would be summed once more.
        refuses(list({a, a}), list({a, a}));
        refuses(list({a, c, part(50, 100)}), list({a, c, part(50, 100)}));
        takes(list({a, b}), list({a, b}));
        takes(list({a, b}), list({d, c}));
        takes(list({b, d}), list({b, c}));
        takes(list({part(0, 0), a}), list({part(50, 0), b}));
        // Slices of 10 elements at 0 and 40, 10 and 50, ...
        const auto rows = [&](std::size_t begin, std::size_t stride) {
            return list_tensor<float, zeropp::host_space>(part(begin, 100), {.stride = stride, .elements = 20});
        };
        takes(list({rows(0, 40), rows(10, 40)}), list({rows(0, 40), rows(10, 40)}));
        takes(list({rows(0, 40), rows(10, 40)}), list({rows(20, 40), rows(30, 40)}));
        refuses(list({rows(0, 40), rows(10, 40)}), list({rows(20, 40), rows(0, 40)}));
        refuses(list({rows(0, 40), rows(10, 40)}), list({rows(0, 50), rows(20, 40)}));
        refuses(list({rows(0, 40)}), list({rows(49, 20)}));
        takes(list({rows(0, 40)}), list({rows(50, 20)}));
        // An array may be longer than its tensor.
        const list_tensor<float, zeropp::host_space> longer(part(0, 120), {.elements = 100});
        takes(list({longer, b}), list({longer, b}));
        takes(list({longer}), list({b}));
        // A list of shards states a stride, which means nothing there.
        const tensor_list<float> within_b({{part(110, 50), {.stride = 60}}, {part(320, 50), {.stride = 60}}});
        const std::string said = thrown<zeropp::precondition_error>([&] {
            zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{int8, int8}, list({a, b}),
                                                          within_b);
        });
        expect(said.find("overlaps elsewhere") != std::string::npos, said);
    });
}

TEST_CASE("lists: ten thousand tensors of three elements, in one message for each peer and hop") {
    constexpr std::size_t count = 10'000;
    on_threads(4, "many tensors", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::counting counted(transport, zeropp::two_level(2, 2));
        zeropp::communicator comm(zeropp::two_level(2, 2), counted);
        std::vector<std::vector<float>> tensors(count, std::vector<float>(3)), own(count);
        for (std::size_t t = 0; t != count; ++t) {
            if (comm.rank() < 3) own[t] = {static_cast<float>(t % 100) + static_cast<float>(comm.rank())};
        }
        const tensor_list<float> full(comm.topology(), listed(tensors));
        const tensor_list<float> shard(listed(own));
        zeropp::quantized_all_gather(host{}, comm, int8, shard, full);
        std::size_t wrong = 0;
        for (std::size_t t = 0; t != count; ++t) {
            for (std::size_t i = 0; i != 3; ++i) {
                wrong += std::fabs(tensors[t][i] - static_cast<float>(t % 100 + i)) > 1e-3f ? 1u : 0u;
            }
        }
        expect(wrong == 0);
        // Of each tensor 32 codes, but one of the last, and a scale of four bytes: 359,972, a multiple of 16 in all.
        expect(counted.total().calls == 1);
        expect(counted.total().inter_node_bytes == count * 36 - 16);
    });
}

TEST_CASE("lists: what is not finite in one tensor stays in it") {
    on_threads(4, "not finite", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        std::vector<std::vector<float>> tensors(3, std::vector<float>(500, 1.0f));
        if (comm.rank() == 2) tensors[1][77] = std::numeric_limits<float>::infinity();
        const tensor_list<float> list(comm.topology(), listed(tensors));
        zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int4, int8}, list, list,
                                     {.algorithm = zeropp::all_reduce_algorithm::two_shot});
        for (const std::size_t t : {0u, 2u}) expect(tensors[t] == std::vector<float>(500, 4.0f));
        expect(tensors[1][77] != tensors[1][77]);
        expect(tensors[1][400] == 4.0f);
    });
}

TEST_CASE("lists: noise, and error feedback, are those of the tensors by themselves") {
    using dithered = zeropp::stochastic<zeropp::block_integer<4, 32>>;
    using memory_type =
        zeropp::error_feedback<zeropp::hops<dithered, dithered>, zeropp::residuals_in_int8, zeropp::host_space>;
    const dithered q{{}, 17};
    on_threads(6, "noise and feedback", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::two_level::of_nodes({1, 3, 2}), transport);
        const auto r = at(comm.rank());
        const std::size_t sizes[] = {700, 0, 5, 1301};
        std::vector<std::vector<float>> gradients, of_list, alone;
        std::deque<guarded<std::byte>> storages;
        std::deque<memory_type> memories;
        for (const std::size_t n : sizes) {
            const zeropp::partition part(n, 6);
            gradients.push_back(tensor_of(n, reference::fp32, n + r));
            of_list.emplace_back(part.size(comm.rank()));
            alone.emplace_back(part.size(comm.rank()));
            storages.emplace_back(memory_type::storage_bytes(comm.topology(), n));
            memories.emplace_back(comm.topology(), n, storages.back().view());
        }
        const tensor_list<float> full(comm.topology(), listed(gradients));
        const tensor_list<float> shard(listed(of_list));
        guarded<std::byte> storage(memory_type::storage_bytes(comm.topology(), full));
        memory_type memory(comm.topology(), full, storage.view());
        const zeropp::reduce_options options{.chunks = 3};
        guarded<std::byte> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
            comm.topology(), zeropp::hops{q, q}, full, options));
        for (int step = 0; step != 3; ++step) {
            zeropp::hierarchical_quantized_reduce_scatter(host{}, comm,
                                                          zeropp::with_error_feedback(zeropp::hops{q, q}, memory), full,
                                                          shard, options, scratch.view());
            for (std::size_t t = 0; t != std::size(sizes); ++t) {
                zeropp::workspace<zeropp::host_space> own(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
                    comm.topology(), zeropp::hops{q, q}, sizes[t], {}));
                zeropp::hierarchical_quantized_reduce_scatter(
                    host{}, comm, zeropp::with_error_feedback(zeropp::hops{q, q}, memories[t]), gradients[t], alone[t],
                    {}, own.view());
                expect(difference(of_list[t], alone[t]) == "");
            }
        }
        expect(storage.intact());
        expect(scratch.intact());
    });
}

TEST_CASE("lists: a secondary partition, stored by a gather in chunks and a pipeline") {
    on_threads(6, "secondary", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::two_level::of_nodes({4, 2}), transport);
        const int k = comm.group_size();
        using secondary_type = zeropp::secondary_partition<zeropp::cast_to<float>, zeropp::host_space>;
        const std::size_t sizes[] = {1000, 2, 0, 777};
        std::vector<std::vector<float>> tensors, again, shards;
        for (const std::size_t n : sizes) {
            tensors.emplace_back(n);
            again.emplace_back(n);
            shards.push_back(reference::slice_of(tensor_of(n, reference::fp32, n), 6, at(comm.rank())));
        }
        const tensor_list<float> full(comm.topology(), listed(tensors));
        const tensor_list<float> backward(comm.topology(), listed(again));
        const tensor_list<float> shard(listed(shards));
        guarded<std::byte> storage(secondary_type::storage_bytes({}, full, k));
        secondary_type secondary({}, full, k, comm.index(), storage.view());
        const host_queue first, second;
        const zeropp::gather_options options{.chunks = 4};
        guarded<std::byte> scratch(zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int8, full, options));
        zeropp::quantized_all_gather(zeropp::pipeline<host_queue>{first, second}, comm, int8, shard, full, options,
                                     scratch.view());
        secondary.store(first, full, 5);
        first.wait();
        zeropp::secondary_partition_gather(host{}, comm, secondary, 5, backward);
        expect(again == tensors);
        expect(storage.intact());
        for (std::size_t t = 0; t != std::size(sizes); ++t) {
            const auto expected = reference::gathered(tensor_of(sizes[t], reference::fp32, sizes[t]), 6,
                                                      described(int8), reference::fp32);
            expect(difference(tensors[t], expected) == "");
        }
        tensors[0].pop_back();
        const tensor_list<float> other(comm.topology(), listed(tensors));
        expect(thrown<zeropp::precondition_error>([&] {
                   secondary.store(host{}, other, 6);
               }).starts_with("secondary_partition: "));
        expect(thrown<zeropp::precondition_error>([&] {
                   secondary.store(host{}, std::vector<float>(1779), 6);
               }).starts_with("secondary_partition: "));
        const tensor_list<float> other_groups(zeropp::two_level::of_nodes({3, 1, 1, 1}), listed(again));
        const std::string problem = "secondary_partition: expected a list over groups of " + std::to_string(k) +
                                    " ranks, given one over groups of 1, 3";
        expect.equal(thrown<zeropp::precondition_error>([&] { secondary.store(host{}, other_groups, 6); }), problem);
        expect.equal(
            thrown<zeropp::precondition_error>([&] { secondary_type({}, other_groups, k, 0, storage.view()); }),
            problem);
        // Of equal shards over all ranks, and other parts over the ranks of a node.
        std::vector<float> nine(9);
        const tensor_list<float> in_rows(comm.topology(), {{nine, {.row = 2}}}), by_one(comm.topology(), {nine});
        secondary_type of_rows({}, in_rows, k, comm.index(), storage.view());
        expect(thrown<zeropp::precondition_error>([&] {
                   of_rows.store(host{}, by_one, 6);
               }).starts_with("secondary_partition: expected a list of 1 tensors with digest "));
        std::vector<float> gapped(60);
        const tensor_list<float> with_gaps(comm.topology(), {{gapped, {.stride = 10, .elements = 12}}});
        expect.equal(thrown<zeropp::precondition_error>([&] { secondary.store(host{}, with_gaps, 6); }),
                     "secondary_partition: expected tensors without gaps between shards, given a list with gaps");
    });
}

TEST_CASE("lists: what is wrong with a list is said where it is made") {
    const zeropp::two_level ranks(2, 2);
    std::vector<float> ten(10);
    using made = tensor_list<float>;
    CHECK_THROWS_WITH(made(ranks, {{ten, {.stride = 2}}}),
                      "tensor_list: expected tensor 0 with a stride of at least a shard's 3 elements, given 2");
    CHECK_THROWS_WITH(made(ranks, {ten, {ten, {.stride = 4, .elements = 10}}}),
                      "tensor_list: expected tensor 1 in an array of at least 13 elements, given 10");
    CHECK_THROWS_WITH(made(ranks, {{ten, {.row = 0}}}),
                      "tensor_list: expected tensor 0 in rows of at least 1 element, given 0");
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    for (const std::size_t row : {most, std::size_t{1} << 62, std::size_t{1} << 54}) {
        CHECK_THROWS_WITH(made(ranks, {{ten, {.row = row}}}),
                          "tensor_list: expected tensor 0 in shards of at most 18014398509481983 elements, given " +
                              std::to_string(row));
    }
    constexpr std::size_t large = std::size_t{1} << 53;  // half of the elements that a rank's shards may have
    CHECK_THROWS_WITH(made(ranks, {{ten, {.row = large}}, {ten, {.row = large}}}),
                      "tensor_list: expected tensor 1 in shards of at most " + std::to_string(large - 1) +
                          " elements, given " + std::to_string(large));
    // In rows of the last two sizes, the elements of whole rows are more than a size counts.
    for (const std::size_t row : {std::size_t{1}, most / 256, most / 2 + 1}) {
        CHECK_THROWS_WITH(made(zeropp::two_level(1, 1), {{ten, {.row = row, .elements = most}}}),
                          "tensor_list: expected tensor 0 in shards of at most " + std::to_string(most / 256) +
                              " elements, given " + std::to_string(most));
    }
    for (const std::size_t stride : {most, std::size_t{1} << 63, most / 3}) {
        CHECK_THROWS_WITH(made(ranks, {{ten, {.stride = stride, .elements = 10}}}),
                          "tensor_list: expected tensor 0 in an array of at least " + std::to_string(most) +
                              " elements, given 10");
    }
    CHECK(made(ranks, {{ten, {.row = std::size_t{1} << 50}}}).over_ranks()[0].part.size(0) == 10);
    const made empty(ranks, std::span<const list_tensor<float, zeropp::host_space>>());
    CHECK(empty.elements() == 0);
}

TEST_CASE("lists: ranks that disagree about one are told") {
    on_threads(4, "disagreement", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::two_level(2, 2), zeropp::checked(transport));
        const bool last = comm.rank() == 3;
        const auto refuses = [&](auto call, const std::string& words) {
            const std::string said = thrown<zeropp::precondition_error>(call);
            expect(said.find(words) != std::string::npos, "\"" + words + "\", given \"" + said + "\"");
        };
        std::vector<float> a(100), b(60), c(last ? 101 : 100), d(last ? 59 : 60), own(25), small(15);
        const tensor_list<float> full(comm.topology(), {a, b});
        const tensor_list<float> differs(comm.topology(), {c, d});
        const tensor_list<float> shard({own, small});
        const tensor_list<float> only_one({own});
        refuses([&] { zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, differs, differs); },
                "a list of 2 tensors");
        refuses([&] { zeropp::quantized_all_gather(host{}, comm, int8, last ? only_one : shard, full); },
                "on rank 3, expected a list of 2 shards, given one of 1");
        refuses([&] { zeropp::quantized_all_gather(host{}, comm, int8, tensor_list<float>({own, a}), full); },
                "of tensor 1, expected a shard of 15 elements of 60, given one of 100");
        refuses([&] { zeropp::quantized_all_gather(host{}, comm, int8, shard, shard); },
                "expected a list of whole tensors over 4 ranks, given a list of shards");
        refuses([&] { zeropp::quantized_all_gather(host{}, comm, int8, full, full); },
                "expected a list of shards, given one of whole tensors");
        const tensor_list<float> of_six(zeropp::two_level(2, 3), {a, b});
        refuses([&] { zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, of_six, of_six); },
                "expected a list of whole tensors over 4 ranks, given one over 6");
        const tensor_list<float> flat(zeropp::two_level(1, 4), {a, b});
        zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, flat, flat);
    });
}
