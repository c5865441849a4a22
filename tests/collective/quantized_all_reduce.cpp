/// \file
/// quantized_all_reduce against the reference: any size, topology, route and chunks, in place or not; error feedback,
/// and what it refuses.

#include "collective/drawn_case.hpp"
#include "collective/ranks.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/on_threads.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>

#include <cstddef>
#include <limits>
#include <vector>

using namespace collective_test;
using zeropp::all_reduce_algorithm;
using zeropp::all_reduce_options;
using zeropp::host;
using zeropp::host_queue;
using zeropp_test::expectations;
using zeropp_test::on_threads;
using zeropp_test::thrown;

namespace {

constexpr zeropp::block_integer<8, 64> int8;
constexpr zeropp::block_integer<4, 32> int4;
constexpr zeropp::block_integer<6, 128> int6;
constexpr zeropp::cast_to<zeropp::bfloat16> bf16;

template <class T, class Execution, class IntraNode, class InterNode, class Back>
void check_drawn(int seed, const IntraNode& intra_node, const InterNode& inter_node, const Back& back) {
    drawn_case drawn(seed);
    const std::size_t n = drawn.n;
    const auto ranks = at(drawn.map.ranks());
    const bool in_place = drawn.random.below(2) == 0;
    const bool mean = drawn.random.below(2) == 0;
    const bool gathers = drawn.random.below(3) == 0;
    const std::size_t shift = drawn.shift<T>();
    const all_reduce_options options{mean ? zeropp::reduction::mean : zeropp::reduction::sum, drawn.chunks,
                                     gathers ? all_reduce_algorithm::one_shot : all_reduce_algorithm::two_shot};
    INFO(drawn.text() << (mean ? ", mean" : ", sum") << (gathers ? ", gathered" : ", scattered")
                      << (in_place ? ", in place" : "") << ", shift " << shift);
    std::vector<std::vector<float>> fulls;
    for (std::size_t r = 0; r != ranks; ++r) fulls.push_back(tensor_of(n, format_of<T>, at(seed) * 64 + r));
    std::vector<std::vector<float>> results(ranks);
    std::vector<char> intact(ranks);
    on_ranks(drawn.map.ranks(), drawn.text(), [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(drawn.map.topology(), transport);
        const auto r = at(comm.rank());
        guarded<T> full(n, shift), apart(n);
        full.fill(narrowed<T>(fulls[r]));
        guarded<std::byte> scratch(zeropp::quantized_all_reduce_workspace_bytes(
            comm.topology(), zeropp::hops{intra_node, inter_node, back}, n, options));
        const Execution first, second;
        const zeropp::host_view<T> result = in_place ? full.view() : apart.view();
        zeropp::quantized_all_reduce(zeropp::pipeline<Execution>{first, second}, comm,
                                     zeropp::hops{intra_node, inter_node, back}, full.view(), result, options,
                                     scratch.view());
        first.wait();
        results[r] = widened(result.data(), n);
        intact[r] = full.intact() && apart.intact() && scratch.intact() &&
                    (in_place || difference(full.values(), fulls[r]).empty());
    });
    const std::vector<float> expected =
        reference::all_reduced(drawn.map.node_of_rank, fulls, described(intra_node), described(inter_node),
                               described(back), mean, gathers, format_of<T>);
    for (std::size_t r = 0; r != ranks; ++r) {
        INFO("rank " << r);
        REQUIRE(difference(results[r], expected) == "");
        REQUIRE(intact[r]);
    }
}

}  // namespace

TEST_CASE("all-reduce: drawn cases have the bits of the reference on every rank") {
    for (int seed = 0; seed != 90; ++seed) {
        switch (seed % 3) {
        case 0:
            check_drawn<float, host_queue>(seed, int8, int4, int6);
            break;
        case 1:
            check_drawn<zeropp::half, host>(seed, int8, int4, int6);
            break;
        default:
            check_drawn<zeropp::bfloat16, host_queue>(seed, bf16, bf16, bf16);
        }
    }
}

TEST_CASE("all-reduce: small tensors go round whole, large ones in slices, by themselves") {
    for (const std::size_t n : {std::size_t{100}, std::size_t{400'000}}) {
        on_threads(4, "routes", [&](zeropp::thread_transport& transport, expectations& expect) {
            zeropp::counting counted(transport, zeropp::two_level(2, 2));
            zeropp::communicator comm(zeropp::two_level(2, 2), counted);
            const std::vector<float> full(n, 1.0f);
            std::vector<float> result(n);
            zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, full, result);
            const std::size_t slice = zeropp::wire_bytes(int8, n / 4);
            // Across: all of the tensor to one other node, or half of it out and a quarter back.
            expect(counted.by_primitive().size() == 1);
            expect(counted.total().calls == 1);
            expect(counted.total().inter_node_bytes == (n == 100 ? 4 * slice : 2 * slice));
            expect(counted.total().intra_node_bytes == (n == 100 ? 8 * slice : 4 * slice));
            expect(result == std::vector<float>(n, 4.0f));
        });
    }
}

TEST_CASE("all-reduce: large tensors of two ranks go round whole, unless slices have fewer bytes") {
    const std::size_t n = 200'001;
    const std::vector<std::vector<float>> fulls{tensor_of(n, reference::fp32, 1), tensor_of(n, reference::fp32, 2)};
    for (const int nodes : {1, 2}) {
        // On one node, int8 is longer than the int6 of the all-gather phase; between nodes, int4 is shorter.
        const std::vector<float> expected =
            reference::all_reduced({0, nodes - 1}, fulls, described(int8), described(int4), described(int6), false,
                                   nodes == 2, reference::fp32);
        on_threads(2, "two ranks", [&](zeropp::thread_transport& transport, expectations& expect) {
            zeropp::communicator comm(zeropp::two_level(nodes, 2 / nodes), transport);
            const host_queue first, second;
            std::vector<float> result(n);
            zeropp::quantized_all_reduce(zeropp::pipeline<host_queue>{first, second}, comm,
                                         zeropp::hops{int8, int4, int6}, fulls[at(comm.rank())], result);
            expect(difference(result, expected).empty());
        });
    }
}

TEST_CASE("all-reduce: what is not finite on one rank is not hidden on any") {
    for (const auto route : {all_reduce_algorithm::one_shot, all_reduce_algorithm::two_shot}) {
        for (const float broken : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            on_threads(6, "not finite", [&](zeropp::thread_transport& transport, expectations& expect) {
                zeropp::communicator comm(zeropp::two_level(2, 3), transport);
                std::vector<float> tensor(5000, 1.0f);
                if (comm.rank() == 4) tensor[3000] = broken;
                zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int4, int8}, tensor, tensor,
                                             {.algorithm = route});
                expect(tensor[3000] != tensor[3000]);
                expect(std::isfinite(tensor[2900]));
            });
        }
    }
}

TEST_CASE("all-reduce: error feedback makes up for every hop over time") {
    const std::size_t n = 3000;
    using memory_type = zeropp::error_feedback<
        zeropp::hops<zeropp::block_integer<4, 32>, zeropp::block_integer<4, 32>, zeropp::block_integer<4, 32>>,
        zeropp::residuals_in_fp32, zeropp::host_space>;
    on_threads(4, "feedback", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const std::vector<float> gradient = tensor_of(n, reference::fp32, 10 + at(comm.rank()));
        std::vector<double> exact(n);
        for (std::size_t r = 0; r != 4; ++r) {
            const auto of_rank = tensor_of(n, reference::fp32, 10 + r);
            for (std::size_t i = 0; i != n; ++i) exact[i] += static_cast<double>(of_rank[i]);
        }
        guarded<std::byte> storage(memory_type::storage_bytes(comm.topology(), n));
        memory_type memory(comm.topology(), n, storage.view());
        const auto scratch_bytes = zeropp::quantized_all_reduce_workspace_bytes(
            comm.topology(), zeropp::hops{int4, int4, int4}, n, {.chunks = 3});
        guarded<std::byte> scratch(scratch_bytes);
        const auto error_of_sums = [&](bool fed, int steps) {
            std::vector<double> sums(n);
            for (int step = 0; step != steps; ++step) {
                std::vector<float> result(n);
                if (fed) {
                    zeropp::quantized_all_reduce(host{}, comm,
                                                 zeropp::with_error_feedback(zeropp::hops{int4, int4, int4}, memory),
                                                 gradient, result, {.chunks = 3}, scratch.view());
                } else {
                    zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int4, int4, int4}, gradient, result);
                }
                for (std::size_t i = 0; i != n; ++i) sums[i] += static_cast<double>(result[i]);
            }
            double squares = 0;
            for (std::size_t i = 0; i != n; ++i) squares += std::pow(sums[i] / steps - exact[i], 2);
            return squares;
        };
        const double plain = error_of_sums(false, 40);
        expect(error_of_sums(true, 40) < plain / 100);
        expect(memory.uses() == 40);
        expect(storage.intact());
        expect(scratch.intact());
    });
}

TEST_CASE("all-reduce: refuses wrong arguments on every rank, before anything moves") {
    on_threads(4, "refusals", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::two_level(2, 2), zeropp::checked(transport));
        std::vector<float> full(1000), other(999);
        const auto refuses = [&](auto call, const std::string& words) {
            const std::string said = thrown<zeropp::precondition_error>(call);
            expect(said.find(words) != std::string::npos, "\"" + words + "\", given \"" + said + "\"");
            expect(said.find("quantized_all_reduce") != std::string::npos, "the name of the call in \"" + said + "\"");
        };
        const bool last = comm.rank() == 3;
        refuses(
            [&] {
                zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, full, last ? other : full);
            },
            "on rank 3, expected a result of 1000 elements, given one of 999");
        refuses(
            [&] {
                const zeropp::host_view<float> all(full.data(), 900);
                zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, all,
                                             zeropp::host_view<float>(full.data() + (last ? 100 : 0), 900));
            },
            "on rank 3, expected a result that is full or apart from it");
        refuses(
            [&] {
                zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, full, full, {.chunks = 0});
            },
            "expected at least 1 chunk, given 0");
        refuses(
            [&] {
                zeropp::workspace<zeropp::host_space> small(last ? 16 : 1 << 20);
                zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, full, full, {},
                                             small.view());
            },
            "on rank 3, expected a workspace of at least");
        refuses(
            [&] {
                const auto mean = last ? zeropp::reduction::mean : zeropp::reduction::sum;
                zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, full, full,
                                             {.operation = mean});
            },
            "mean of all on rank 3");
        using memory_type = zeropp::error_feedback<
            zeropp::hops<zeropp::block_integer<8, 64>, zeropp::block_integer<8, 64>, zeropp::block_integer<8, 64>>,
            zeropp::residuals_in_fp32, zeropp::host_space>;
        zeropp::workspace<zeropp::host_space> storage(memory_type::storage_bytes(comm.topology(), 1000));
        memory_type memory(comm.topology(), 1000, storage.view());
        zeropp::workspace<zeropp::host_space> scratch(1 << 20);
        refuses(
            [&] {
                zeropp::quantized_all_reduce(host{}, comm,
                                             zeropp::with_error_feedback(zeropp::hops{int8, int8, int8}, memory), full,
                                             full, {.algorithm = all_reduce_algorithm::one_shot}, scratch.view());
            },
            "expected the algorithm `two_shot` for error feedback, given `one_shot`");
        zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{int8, int8, int8}, std::vector<float>(),
                                     std::vector<float>());
    });
}
