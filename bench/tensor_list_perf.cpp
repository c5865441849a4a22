/// \file
/// A list of equal tensors beside one tensor of equal total size, and beside one call for each.

#include "support/data.hpp"
#include "support/launch.hpp"
#include "support/quantizers.hpp"
#include "support/rank_times.hpp"
#include "support/report.hpp"

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace {

using namespace zeropp_bench;

constexpr std::size_t tensor_elements = 16 * 1024;  // 64 KiB
const zeropp::block_integer<8, 256> int8;

int run(const options& o, ranks_on<host_place>& ranks, const program_facts& program) {
    report rows(ranks.rank() == 0, {{"", "size", "(B)", 12, "/size"},
                                    {"", "tensors", "", 8, "/tensors"},
                                    {"", "collective", "", 16, "/collective"},
                                    {"", "list", "(us)", 11, "/list_us", 0},
                                    {"", "one tensor", "(us)", 11, "/one_us", 0},
                                    {"", "calls", "(us)", 11, "/calls_us", 0},
                                    {"list /", "one", "", 7, "/list_over_one", 2},
                                    {"calls /", "list", "", 7, "/calls_over_list", 2}});
    describe_program(rows, program, o, ranks);
    rows.comment(
        "tensors of 64 KiB of float, int8:256 on every hop; the list and the one tensor as the library chunks them");
    rows.heading();
    comm_on<host_place> comm(ranks.nodes(), ranks.world());
    const zeropp::two_level& nodes = ranks.nodes();
    const int rank = ranks.rank();
    for (const std::size_t bytes : o.sizes()) {
        const std::size_t count = bytes / sizeof(float) / tensor_elements;
        if (count == 0) {
            throw zeropp::precondition_error("--minbytes", "at least one tensor of 64 KiB", std::to_string(bytes));
        }
        const std::size_t elements = count * tensor_elements;
        const zeropp::partition whole(elements, ranks.size()), each(tensor_elements, ranks.size());
        std::vector<float> full(elements), result(elements), shard(whole.size(rank));
        fill<float>(full, 1 + static_cast<std::uint64_t>(rank), 0);
        // Lists: whole tensors in this memory, shards in separate memory.
        std::vector<zeropp::list_tensor<float, zeropp::host_space>> fulls, results, shards;
        std::vector<float> slices(count * each.size(rank));
        for (std::size_t t = 0; t != count; ++t) {
            fulls.emplace_back(zeropp::host_view<float>(full.data() + t * tensor_elements, tensor_elements));
            results.emplace_back(zeropp::host_view<float>(result.data() + t * tensor_elements, tensor_elements));
            shards.emplace_back(zeropp::host_view<float>(slices.data() + t * each.size(rank), each.size(rank)));
        }
        const zeropp::tensor_list<float> full_list(nodes, fulls), result_list(nodes, results), shard_list(shards);
        std::vector<std::byte> scratch(std::max(
            {zeropp::quantized_all_gather_workspace_bytes(nodes, int8, full_list),
             zeropp::quantized_all_gather_workspace_bytes(nodes, int8, elements),
             zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(nodes, zeropp::hops{int8, int8}, full_list),
             zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(nodes, zeropp::hops{int8, int8}, elements),
             zeropp::quantized_all_reduce_workspace_bytes(nodes, zeropp::hops{int8, int8, int8}, full_list),
             zeropp::quantized_all_reduce_workspace_bytes(nodes, zeropp::hops{int8, int8, int8}, elements)}));
        const zeropp::host_queue first, second;
        const zeropp::pipeline<zeropp::host_queue> exec{first, second};
        const auto measure = [&](const std::string& name, auto call) {
            const std::vector<rank_times> times =
                measure_in_turns(ranks, o,
                                 {[&] { call(full_list, result_list, shard_list); }, [&] { call(full, result, shard); },
                                  [&] {
                                      for (std::size_t t = 0; t != count; ++t) {
                                          call(fulls[t].memory, results[t].memory, shards[t].memory);
                                      }
                                  }});
            const double list = times[0].slowest.median, one = times[1].slowest.median;
            const double several = times[2].slowest.median;
            rows.row({{"size", elements * sizeof(float)},
                      {"tensors", count},
                      {"collective", name},
                      {"list_us", list * 1e6},
                      {"one_us", one * 1e6},
                      {"calls_us", several * 1e6},
                      {"list_over_one", list / one},
                      {"calls_over_list", several / list}});
        };
        measure("all-gather", [&](auto&, auto& to, auto& own) {
            zeropp::quantized_all_gather(exec, comm, int8, own, to, {}, scratch);
            first.wait();
        });
        measure("reduce-scatter", [&](auto& from, auto&, auto& own) {
            zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{int8, int8}, from, own, {}, scratch);
            first.wait();
        });
        measure("all-reduce", [&](auto& from, auto& to, auto&) {
            zeropp::quantized_all_reduce(exec, comm, zeropp::hops{int8, int8, int8}, from, to, {}, scratch);
            first.wait();
        });
    }
    return finish_report(rows, o, 0);
}

}  // namespace

int main(int argc, char** argv) {
    const program_facts program{.name = "tensor_list_perf",
                                .purpose =
                                    "Times zeropp's collectives on a list of tensors, beside one tensor of the same "
                                    "total and a call for each.",
                                .has_datatypes = false,
                                .has_checks = false,
                                .overlaps = true};
    return launch(argc, argv, program,
                  {[&](const options& o, ranks_on<host_place>& ranks) { return run(o, ranks, program); }});
}
