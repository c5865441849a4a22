/// \file
/// Cost of checksums: all-gather and reduce-scatter with and without them, alternating.

#include "support/data.hpp"
#include "support/launch.hpp"
#include "support/quantizers.hpp"
#include "support/rank_times.hpp"
#include "support/report.hpp"

#include <zeropp/checksummed.hpp>
#include <zeropp/transport/counting.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace {

using namespace zeropp_bench;

const std::vector<column> columns{{"", "size", "(B)", 12, "/size"},
                                  {"", "collective", "", 40, "/collective"},
                                  {"", "quantizer", "", 10, "/quantizer"},
                                  {"without", "time", "(us)", 10, "/time_us", 1},
                                  {"with checksums", "time", "(us)", 10, "/time_with_checksums_us", 1},
                                  {"with checksums", "cost", "(%)", 6, "/cost_percent", 1},
                                  {"wire bytes, all ranks", "without", "(B)", 12, "/wire_bytes"},
                                  {"wire bytes, all ranks", "added", "(B)", 8, "/wire_bytes_added"},
                                  {"processor, all ranks", "without", "(us)", 10, "/processor_us", 1},
                                  {"processor, all ranks", "with", "(us)", 10, "/processor_with_checksums_us", 1},
                                  {"", "#wrong", "", 6, "/wrong"}};

any_host_transport with_checksums(any_host_transport inner) {
    return any_host_transport(zeropp::checksummed<any_host_transport>(std::move(inner)));
}

using comm_type = comm_on<host_place>;
using collective = std::function<void(comm_type&)>;

/// Bytes that all ranks together send in one call. Collective.
template <class Wrap>
std::uint64_t bytes_of(ranks_on<host_place>& ranks, const collective& call, Wrap wrap) {
    using counting = zeropp::counting<any_host_transport, zeropp::two_level>;
    const auto counted = std::make_shared<counting>(ranks.world(), ranks.nodes());
    comm_type comm(ranks.nodes(), wrap(any_host_transport(counted)));
    call(comm);
    const zeropp::traffic total = counted->total();
    const std::vector<std::uint64_t> of_ranks = ranks.gather(total.intra_node_bytes + total.inter_node_bytes);
    return std::accumulate(of_ranks.begin(), of_ranks.end(), std::uint64_t{0});
}

/// Number of elements of `result`, on all ranks, that differ with checksums. Collective.
std::uint64_t wrong_elements(rank_context& ranks, std::vector<float>& result, const collective& call,
                             comm_type& without, comm_type& with) {
    call(without);
    const std::vector<float> expected = result;
    // A call that writes nothing is wrong.
    std::fill(result.begin(), result.end(), std::numeric_limits<float>::quiet_NaN());
    call(with);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i != result.size(); ++i) wrong += result[i] == expected[i] ? 0u : 1u;
    const std::vector<std::uint64_t> of_ranks = ranks.gather(wrong);
    return std::accumulate(of_ranks.begin(), of_ranks.end(), std::uint64_t{0});
}

class checksum_rows {
public:
    checksum_rows(const program_facts& program, const options& o, ranks_on<host_place>& ranks)
        : options_(o), ranks_(ranks), without_(ranks.nodes(), ranks.world()),
          with_(ranks.nodes(), with_checksums(ranks.world())), report_(ranks.rank() == 0, columns) {
        describe_program(report_, program, o, ranks);
        report_.comment("size: bytes of the whole tensor of floats; one quantizer for both hops");
        report_.comment("time: of the slowest rank from a barrier on, the median over iterations, by turns");
        report_.comment("processor: the time that all ranks' processes spent in one iteration, the median");
        report_.comment("#wrong: elements that are other than without checksums");
        report_.heading();
    }

    /// Measures one row: collective `name` on a tensor of `bytes` bytes. `call` writes `result`.
    void measure(std::size_t bytes, const std::string& name, const std::string& quantizer, const collective& call,
                 std::vector<float>& result) {
        const std::uint64_t wrong = options_.checks == 0 ? 0 : wrong_elements(ranks_, result, call, without_, with_);
        wrong_ += wrong;
        const std::uint64_t data = bytes_of(ranks_, call, [](any_host_transport inner) { return inner; });
        const std::uint64_t all = bytes_of(ranks_, call, with_checksums);
        const auto times = measure_in_turns(ranks_, options_, {[&] { call(without_); }, [&] { call(with_); }});
        const double without = times[0].slowest.median, with = times[1].slowest.median;
        report_.row({{"size", bytes},
                     {"collective", name},
                     {"quantizer", quantizer},
                     {"time_us", without * 1e6},
                     {"time_with_checksums_us", with * 1e6},
                     {"cost_percent", 100 * (with / without - 1)},
                     {"wire_bytes", data},
                     {"wire_bytes_added", all - data},
                     {"processor_us", times[0].processor * 1e6},
                     {"processor_with_checksums_us", times[1].processor * 1e6},
                     {"wrong", wrong}});
    }

    int finish() { return finish_report(report_, options_, wrong_); }

private:
    const options& options_;
    ranks_on<host_place>& ranks_;
    comm_type without_;
    comm_type with_;
    report report_;
    std::uint64_t wrong_ = 0;
};

template <zeropp::quantizer Q>
void measure(checksum_rows& rows, ranks_on<host_place>& ranks, std::size_t bytes, const Q& q) {
    const std::string quantizer = zeropp::short_text(q.name()).str();
    const zeropp::partition part(bytes / sizeof(float), ranks.size());
    const int rank = ranks.rank();
    std::vector<float> full(bytes / sizeof(float)), shard(part.size(rank));
    fill<float>(shard, 1, part.offset(rank));
    std::vector<std::byte> scratch(zeropp::quantized_all_gather_workspace_bytes(ranks.nodes(), q, full.size()));
    const auto gather = [&](comm_type& comm) {
        zeropp::quantized_all_gather(zeropp::host(), comm, q, shard, full, {}, scratch);
    };
    rows.measure(bytes, "quantized_all_gather", quantizer, gather, full);

    fill<float>(full, 2 + static_cast<std::uint64_t>(rank), 0);
    scratch.resize(
        zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(ranks.nodes(), zeropp::hops{q, q}, full.size()));
    const auto reduce = [&](comm_type& comm) {
        zeropp::hierarchical_quantized_reduce_scatter(zeropp::host(), comm, zeropp::hops{q, q}, full, shard,
                                                      zeropp::reduce_options(), scratch);
    };
    rows.measure(bytes, "hierarchical_quantized_reduce_scatter", quantizer, reduce, shard);
}

}  // namespace

int main(int argc, char** argv) {
    const program_facts program{.name = "checksummed_perf",
                                .purpose = "Times zeropp's collectives over a transport with and without checksums.",
                                .quantizers = {"fp32", "int8:256", "int4:128"},
                                .has_datatypes = false};
    const auto measure_all = [&](const options& o, ranks_on<host_place>& ranks) {
        checksum_rows rows(program, o, ranks);
        for (const std::size_t bytes : o.sizes()) {
            for (const std::string& name : o.quantizers) {
                std::visit([&](const auto& q) { measure(rows, ranks, bytes, q); }, bench_quantizers::parse(name));
            }
        }
        return rows.finish();
    };
    return launch(argc, argv, program, {measure_all});
}
