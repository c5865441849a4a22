/// \file
/// Fixed numbers of chunks, and both all-reduce algorithms, beside the library's choice, alternating.

#include "support/data.hpp"
#include "support/launch.hpp"
#include "support/quantizers.hpp"
#include "support/rank_times.hpp"
#include "support/report.hpp"

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_bench;

constexpr std::array fixed{1, 2, 4, 8, 16, 32};
const zeropp::block_integer<8, 256> intra_node;
const zeropp::block_integer<4, 128> inter_node;

/// Collectives of one rank in `chunks` chunks, on two queues.
class calls {
public:
    calls(ranks_on<host_place>& ranks, comm_on<host_place>& comm, std::size_t elements)
        : comm_(comm), part_(elements, ranks.size()), full_(elements), result_(elements),
          shard_(part_.size(ranks.rank())) {
        fill<float>(full_, 1 + static_cast<std::uint64_t>(ranks.rank()), 0);
    }

    void gather(int chunks) {
        const zeropp::gather_options how{.chunks = chunks};
        reserve(zeropp::quantized_all_gather_workspace_bytes(comm_.topology(), inter_node, full_.size(), how));
        zeropp::quantized_all_gather(exec_, comm_, inter_node, shard_, result_, how, scratch_);
        first_.wait();
    }
    void reduce(int chunks) {
        const zeropp::reduce_options how{.chunks = chunks};
        reserve(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
            comm_.topology(), zeropp::hops{intra_node, inter_node}, full_.size(), how));
        zeropp::hierarchical_quantized_reduce_scatter(exec_, comm_, zeropp::hops{intra_node, inter_node}, full_, shard_,
                                                      how, scratch_);
        first_.wait();
    }
    void all_reduce(int chunks, zeropp::all_reduce_algorithm algorithm) {
        const zeropp::all_reduce_options how{.chunks = chunks, .algorithm = algorithm};
        reserve(zeropp::quantized_all_reduce_workspace_bytes(
            comm_.topology(), zeropp::hops{intra_node, inter_node, inter_node}, full_.size(), how));
        zeropp::quantized_all_reduce(exec_, comm_, zeropp::hops{intra_node, inter_node, inter_node}, full_, result_,
                                     how, scratch_);
        first_.wait();
    }

private:
    void reserve(std::size_t bytes) { scratch_.resize(std::max(bytes, scratch_.size())); }

    comm_on<host_place>& comm_;
    zeropp::partition part_;
    std::vector<float> full_, result_, shard_;
    std::vector<std::byte> scratch_;
    zeropp::host_queue first_, second_;
    zeropp::pipeline<zeropp::host_queue> exec_{first_, second_};
};

std::vector<column> columns() {
    std::vector<column> all{{"", "size", "(B)", 12, "/size"}, {"", "collective", "", 16, "/collective"}};
    for (const int chunks : fixed) {
        const std::string number = std::to_string(chunks);
        all.push_back({"time in chunks (us)", number, "", 11, "/" + number, 0});
    }
    all.push_back({"", "gather", "(us)", 11, "/gather", 0});
    all.push_back({"", "automatic", "(us)", 11, "/automatic", 0});
    all.push_back({"automatic", "/ best", "", 7, "/of_best", 2});
    return all;
}

int run(const options& o, ranks_on<host_place>& ranks, const program_facts& program) {
    report rows(ranks.rank() == 0, columns());
    describe_program(rows, program, o, ranks);
    rows.comment("int8:256 intra-node and int4:128 inter-node; gather is the one-shot all-reduce, in one chunk");
    rows.heading();
    comm_on<host_place> comm(ranks.nodes(), ranks.world());
    for (const std::size_t bytes : o.sizes()) {
        calls made(ranks, comm, bytes / sizeof(float));
        using algorithm = zeropp::all_reduce_algorithm;
        const auto measure = [&](const std::string& name, const std::function<void(int)>& call, bool has_gather) {
            std::vector<std::function<void()>> contestants;
            for (const int chunks : fixed) contestants.push_back([&call, chunks] { call(chunks); });
            if (has_gather) contestants.push_back([&made] { made.all_reduce(1, algorithm::one_shot); });
            contestants.push_back([&call] { call(zeropp::auto_chunks); });
            const std::vector<rank_times> times = measure_in_turns(ranks, o, std::move(contestants));
            const auto us = [&](std::size_t contestant) { return times[contestant].slowest.median * 1e6; };
            nlohmann::ordered_json row{{"size", bytes}, {"collective", name}};
            double best = us(0);
            for (std::size_t i = 0; i + 1 != times.size(); ++i) {
                row[i < fixed.size() ? std::to_string(fixed[i]) : "gather"] = us(i);
                best = std::min(best, us(i));
            }
            const double automatic = us(times.size() - 1);
            row["automatic"] = automatic;
            row["of_best"] = automatic / best;
            rows.row(std::move(row));
        };
        measure("all-gather", [&](int chunks) { made.gather(chunks); }, false);
        measure("reduce-scatter", [&](int chunks) { made.reduce(chunks); }, false);
        measure(
            "all-reduce",
            [&](int chunks) {
                made.all_reduce(chunks, chunks == zeropp::auto_chunks ? algorithm::by_size : algorithm::two_shot);
            },
            true);
    }
    return finish_report(rows, o, 0);
}

}  // namespace

int main(int argc, char** argv) {
    const program_facts program{.name = "chunks_perf",
                                .purpose =
                                    "Times zeropp's collectives in fixed numbers of chunks, and in as many as the "
                                    "library takes by itself.",
                                .has_datatypes = false,
                                .has_checks = false,
                                .overlaps = true};
    return launch(argc, argv, program,
                  {[&](const options& o, ranks_on<host_place>& ranks) { return run(o, ranks, program); }});
}
