/// \file
/// A reduce-scatter on sites of nodes: over three levels, with sites ignored, and with each site as one node,
/// alternating.

#include "support/checks.hpp"
#include "support/data.hpp"
#include "support/launch.hpp"
#include "support/rank_times.hpp"
#include "support/report.hpp"
#include "support/routes.hpp"

#include <zeropp/plan.hpp>
#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_bench;

constexpr std::uint64_t first_seed = 1;
const zeropp::hops by_three{zeropp::block_integer<8, 256>(), zeropp::block_integer<4, 128>(),
                            zeropp::block_integer<4, 128>()};
const zeropp::hops by_two{zeropp::block_integer<8, 256>(), zeropp::block_integer<4, 128>()};

/// Gradients and shard of a rank, and two queues.
struct bed {
    ranks_on<host_place>& ranks;
    zeropp::three_level sites;  // the real ones
    zeropp::reduce_options how;
    zeropp::partition part;
    std::vector<float> full, shard;
    zeropp::host_queue first, second;

    bed(ranks_on<host_place>& r, const zeropp::three_level& s, int chunks, std::size_t elements)
        : ranks(r), sites(s), how{.chunks = chunks}, part(elements, r.size()), full(elements),
          shard(part.size(r.rank())) {
        fill<float>(full, first_seed + static_cast<std::uint64_t>(r.rank()), 0);
    }
};

/// One way to see the ranks, and its contestants.
struct view {
    nlohmann::ordered_json row;
    std::function<void()> call;
    /// Its messages along its slowest level alone.
    std::vector<std::function<void()>> bare;
};

template <class Transport, zeropp::topology Topology, class Hops>
void reduce(bed& b, zeropp::communicator<Topology, Transport>& comm, const Hops& by_level,
            std::vector<std::byte>& scratch) {
    zeropp::hierarchical_quantized_reduce_scatter(zeropp::pipeline(b.first, b.second), comm, by_level, b.full, b.shard,
                                                  b.how, scratch);
    b.first.wait();
}

/// Sums of all ranks' bytes along each real level. Throws zeropp::error if the plan says other bytes. Collective.
template <zeropp::topology Topology, class Hops>
zeropp::volume count(bed& b, const Topology& seen, const Hops& by_level, std::vector<std::byte>& scratch) {
    using counting = zeropp::counting<any_host_transport, zeropp::three_level>;
    zeropp::communicator comm(seen, counting(b.ranks.world(), b.sites));
    reduce(b, comm, by_level, scratch);
    const zeropp::traffic total = comm.world().total();
    const zeropp::volume sent{total.intra_node_bytes, total.inter_node_bytes, total.inter_site_bytes};
    zeropp::volume all;
    for (const zeropp::volume& v : b.ranks.gather(sent)) all += v;
    if constexpr (Topology::levels == 3) {
        const zeropp::wire_format int8 = wire_format_of(by_level.at(zeropp::level<0>));
        const zeropp::wire_format int4 = wire_format_of(by_level.last());
        const zeropp::volume plan =
            zeropp::reduce_scatter_volume(seen, {int8, int4, int4}, b.full.size(), b.how.chunks, b.ranks.rank());
        if (sent != plan) throw zeropp::error("a reduce-scatter over three levels sent other bytes than its plan says");
    }
    return all;
}

template <zeropp::topology Topology, class Hops>
view make_view(bed& b, const std::string& name, const Topology& seen, const Hops& by_level, bool checks) {
    const auto scratch = std::make_shared<std::vector<std::byte>>(
        zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(seen, by_level, b.full.size(), b.how));
    const auto comm = std::make_shared<zeropp::communicator<Topology, any_host_transport>>(seen, b.ranks.world());
    view made;
    const zeropp::volume sent = count(b, seen, by_level, *scratch);
    made.row = {{"size", b.full.size() * sizeof(float)},
                {"topology", name},
                {"intra_node_wire_bytes", sent.intra_node},
                {"inter_node_wire_bytes", sent.inter_node},
                {"inter_site_wire_bytes", sent.inter_site}};
    made.call = [&b, &by_level, comm, scratch] { reduce(b, *comm, by_level, *scratch); };
    std::fill(b.shard.begin(), b.shard.end(), 0.0f);
    made.call();
    std::optional<tally> found;
    if (checks) {
        const tally own = check_reduced<float>(by_level, seen, std::span<const float>(b.shard),
                                               b.part.offset(b.ranks.rank()), first_seed);
        found.emplace();
        for (const tally& t : b.ranks.gather(own)) found->add(t);
    }
    add_check(made.row, found);
    route way;
    add_reduction(way, seen, b.ranks.rank(), messages_of(by_level, seen, b.part.slice_size(), b.how.chunks));
    made.bare = b.ranks.bare_exchanges(way.empty() ? way : route{way.back()});  // a single rank has no hop
    return made;
}

int run(const options& o, ranks_on<host_place>& ranks, const program_facts& program) {
    const zeropp::two_level& nodes = ranks.nodes();
    const int per_node = nodes.group_size(0);
    const zeropp::three_level sites(o.sites, nodes.groups() / o.sites, per_node);
    report rows(ranks.rank() == 0, {{"", "size", "(B)", 12, "/size"},
                                    {"", "topology", "", 22, "/topology"},
                                    {"", "time", "(us)", 11, "/time_us", 0},
                                    {"", "p99", "(us)", 11, "/p99_us", 0},
                                    {"bare, slowest level", "time", "(us)", 11, "/bare_us", 0},
                                    {"bare, slowest level", "ours/", "", 7, "/ours_over_bare", 3},
                                    {"time /", "3 levels'", "", 9, "/of_three_levels", 3},
                                    {"wire bytes, all ranks", "intra-node", "(B)", 12, "/intra_node_wire_bytes"},
                                    {"wire bytes, all ranks", "inter-node", "(B)", 12, "/inter_node_wire_bytes"},
                                    {"wire bytes, all ranks", "inter-site", "(B)", 12, "/inter_site_wire_bytes"},
                                    {"", "processor", "(us)", 10, "/processor_us", 0},
                                    {"", "#wrong", "", 6, "/wrong"}});
    describe_program(rows, program, o, ranks);
    rows.fact("sites", o.sites);
    rows.comment(
        "int8:256 along the first level, int4:128 along later ones; bare: the messages of the slowest level alone");
    rows.comment("wire bytes: along the real links; with three levels, they are equal to the plan's");
    rows.heading();
    std::uint64_t wrong = 0;
    for (const std::size_t bytes : o.sizes()) {
        bed b(ranks, sites, o.chunks, bytes / sizeof(float));
        const auto text = [](int groups, int size) {
            return "two_level(" + std::to_string(groups) + ", " + std::to_string(size) + ")";
        };
        const int of_site = ranks.size() / o.sites;
        view views[] = {
            make_view(b,
                      "three_level(" + std::to_string(o.sites) + ", " + std::to_string(sites.extent(1)) + ", " +
                          std::to_string(per_node) + ")",
                      sites, by_three, o.checks != 0),
            make_view(b, text(nodes.groups(), per_node), zeropp::two_level(nodes.groups(), per_node), by_two,
                      o.checks != 0),
            make_view(b, text(o.sites, of_site), zeropp::two_level(o.sites, of_site), by_two, o.checks != 0)};
        std::vector<std::function<void()>> contestants;
        for (view& v : views) {
            contestants.push_back(v.call);
            contestants.insert(contestants.end(), v.bare.begin(), v.bare.end());
        }
        const std::vector<rank_times> times = measure_in_turns(ranks, o, std::move(contestants));
        auto next = times.begin();
        for (view& v : views) {
            const rank_times& ours = *next++;
            double bare = next->slowest.median;
            for (std::size_t i = 0; i != v.bare.size(); ++i) bare = std::min(bare, (next++)->slowest.median);
            v.row["time_us"] = ours.slowest.median * 1e6;
            v.row["p99_us"] = ours.slowest.p99 * 1e6;
            v.row["bare_us"] = bare * 1e6;
            v.row["ours_over_bare"] = ours.slowest.median / bare;
            v.row["of_three_levels"] = ours.slowest.median / times.front().slowest.median;
            v.row["processor_us"] = ours.processor * 1e6;
            if (o.checks != 0) wrong += v.row["wrong"].get<std::uint64_t>();
            rows.row(v.row);
        }
    }
    return finish_report(rows, o, wrong);
}

}  // namespace

int main(int argc, char** argv) {
    const program_facts program{.name = "levels_perf",
                                .purpose =
                                    "Times a reduce-scatter over sites, nodes and ranks, beside one that ignores "
                                    "sites, one that takes sites for nodes, and the bare exchange of the messages of "
                                    "the slowest level, in turns.",
                                .has_datatypes = false,
                                .has_chunks = true,
                                .has_sites = true,
                                .overlaps = true};
    return launch(argc, argv, program,
                  {[&](const options& o, ranks_on<host_place>& ranks) { return run(o, ranks, program); }});
}
