#include "recommendation.hpp"

#include "advice.hpp"
#include "prediction.hpp"
#include "report.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <ostream>
#include <sstream>
#include <vector>

namespace plan {

namespace {

/// Longest step, as a multiple of the shortest within the budget of loss, for which less loss is preferred.
constexpr double longest = 1.1;

// bench/results/pareto.md: three seeds, 3072 steps.
constexpr measured_loss zero3_loss{0, 0};
constexpr measured_loss zeropp_loss{-0.2, 0.41};
constexpr measured_loss three_levels_loss{1.56, 0.09};
constexpr measured_loss by_layer_loss{0.48, 0.21};
constexpr int measured_nodes = 2;

constexpr std::array measured_islands{2, 4, 8};

struct measured_exchange {
    int every;
    const char* bits;
    const char* format;
    std::array<measured_loss, measured_islands.size()> losses;  // by measured_islands
};

constexpr measured_exchange measured_exchanges[] = {
    {8, "16 bits", "bf16", {{{0.98, 0.29}, {3.35, 0.45}, {4.67, 0.19}}}},
    {8, "4 bits", "int4:128:signed:bf16:h32", {{{0.83, 0.25}, {3.6, 0.48}, {4.54, 0.31}}}},
    {8, "2 bits", "lloyd4:128:h128", {{{0.88, 0.31}, {5.9, 0.06}, {6.67, 0.3}}}},
    {32, "16 bits", "bf16", {{{-0.78, 0.27}, {3.3, 0.18}, {10.11, 0.11}}}},
    {32, "4 bits", "int4:128:signed:bf16:h32", {{{-0.43, 0.48}, {3.05, 0.22}, {10.39, 0.37}}}},
    {32, "2 bits", "lloyd4:128:h128", {{{0.99, 0.42}, {4.74, 0.34}, {11.9, 0.37}}}},
    {128, "16 bits", "bf16", {{{6.33, 0.48}, {17.95, 0.44}, {30.44, 0.44}}}},
    {128, "4 bits", "int4:128:signed:bf16:h32", {{{6.54, 0.83}, {18.07, 0.66}, {30.56, 0.78}}}},
    {128, "2 bits", "lloyd4:128:h128", {{{8.84, 0.43}, {24.1, 0.53}, {35.8, 0.34}}}},
};

/// The formats of the measured trainings.
settings with_measured_formats(settings s) {
    s.weights = format_named("int8:256:fp16");
    s.gradients.intra_node = format_named("int8:256:bf16:h32");
    s.gradients.inter_node = format_named("int4:128:signed:bf16:h32");
    s.differences = format_named("lloyd2:128:unbiased:h128");
    s.difference_gradients = format_named("lloyd3:128:h128");
    if (s.by_layer) {
        s.by_layer->differences = s.differences;
        s.by_layer->block_gradients = s.difference_gradients;
        s.by_layer->embedding_gradients = s.gradients.inter_node;
    }
    return s;
}

/// A topology for synchronous training.
struct placement {
    settings on;
    std::string topology;  // empty if there is no choice
    double crossing = 1;   // bytes that an island sends to others for each one that a node sends over the slowest links
};

/// A node's link to others, of which each byte takes `crossing` bytes of the island's link to the others.
zeropp::link_speed limited(const zeropp::link_speed& node, const zeropp::link_speed& between, double crossing) {
    return {std::min(node.bytes_per_second, between.bytes_per_second / crossing),
            std::max(node.latency_seconds, between.latency_seconds)};
}

/// For ZeRO-3. NCCL's rings over all nodes cross each link once, so the slowest link counts.
placement on_rings(settings s) {
    if (s.islands) {
        const zeropp::link_speed& between = s.islands->between;
        zeropp::link_speed& link = s.speed.inter_node;
        link = s.ranks.groups() == s.islands->local.islands ? between : limited(link, between, 1);
    }
    return {s, {}};
}

/// For collectives of the library, which send from rank to rank. With several nodes in an island there are three
/// topologies. Islands as sites of nodes. Islands in the place of nodes: ranks of a node share its link inside the
/// island. Nodes: they share their island's link.
std::vector<placement> placements(const settings& s) {
    if (!s.islands) return {{s, {}}};
    const zeropp::link_speed& between = s.islands->between;
    const zeropp::link_speed& node = s.speed.inter_node;
    const int islands = s.islands->local.islands, nodes = s.ranks.groups(), of_island = nodes / islands;
    settings across = s;
    across.speed.inter_node = between;
    if (nodes == islands) return {{across, {}}};

    settings sites = s;
    sites.sites = islands;
    sites.speed.inter_site = between;

    const int of_node = s.ranks.group_size(0), peers = of_island * of_node - 1;
    across.ranks = zeropp::two_level(islands, peers + 1);
    across.speed.inter_node.bytes_per_second = std::min(between.bytes_per_second, of_island * node.bytes_per_second);
    // A rank's messages to peers on other nodes and on its own are under way at once.
    across.speed.intra_node = {node.bytes_per_second / of_node * peers / (peers + 1 - of_node), node.latency_seconds};
    if (of_node > 1) {
        across.speed.intra_node.bytes_per_second = std::min(
            across.speed.intra_node.bytes_per_second, s.speed.intra_node.bytes_per_second * peers / (of_node - 1));
    }

    settings shared = s;
    const double crossing = static_cast<double>(of_island) * (nodes - of_island) / (nodes - 1);
    shared.speed.inter_node = limited(node, between, crossing);
    const auto text = [](const zeropp::two_level& ranks) {
        return ", on two_level(" + std::to_string(ranks.groups()) + ", " + std::to_string(ranks.group_size(0)) + ")";
    };
    const std::string of_sites = ", on three_level(" + std::to_string(islands) + ", " + std::to_string(of_island) +
                                 ", " + std::to_string(of_node) + ")";
    return {{sites, of_sites, static_cast<double>(of_island)},
            {across, text(across.ranks)},
            {shared, text(shared.ranks), crossing}};
}

void add_synchronous(std::vector<option>& options, const settings& s) {
    const auto add = [&](const placement& at, const std::string& name, const parts& of, const measured_loss& loss) {
        run r = predict_run(at.on, name, of);
        if (of.hpz && s.islands) {
            // Secondary groups lie inside islands, whatever the topology of the other collectives.
            r.time.backward = predict_run(s, name, of).time.backward;
            r.by_node.backward = {};
        }
        const bool elsewhere = loss.error != 0 && at.on.ranks.groups() != measured_nodes;
        const zeropp::volume sent = r.by_node.total();
        options.push_back({name + at.topology,
                           static_cast<double>(at.on.sites == 1 ? sent.inter_node : sent.inter_site) * at.crossing,
                           predict_layout(at.on, name, of).total(), r.time.without_overlap(), loss,
                           elsewhere ? std::to_string(measured_nodes) + " nodes" : std::string()});
    };
    add(on_rings(s), "ZeRO-3", {}, zero3_loss);
    for (const placement& at : placements(s)) {
        add(at, "ZeRO++", {.qwz = true, .hpz = true, .qgz = true}, zeropp_loss);
        add(at, "differences: signs, three levels", {.differences = true}, three_levels_loss);
        if (s.by_layer) add(at, "differences by layer", {.by_layer = true}, by_layer_loss);
    }
}

void add_local_steps(std::vector<option>& options, settings s, const island_settings& given) {
    zeropp::local_steps& local = s.islands.emplace(given).local;
    local.delay = 0;
    const auto found = std::lower_bound(measured_islands.begin(), measured_islands.end(), local.islands);
    const auto nearest = found != measured_islands.end() ? found : std::prev(found);
    for (const measured_exchange& exchange : measured_exchanges) {
        local.every = exchange.every;
        local.differences = format_named(exchange.format);
        local.residuals = residual_format("int8", exchange.format);
        const std::vector<local_run> runs = predict_local_runs(s);
        for (const std::size_t inside : {0u, 1u}) {
            const local_run& r = runs[inside];
            options.push_back({std::string(exchange.bits) + " every " + std::to_string(exchange.every) + " steps, " +
                                   (inside == 0 ? "ZeRO-3" : "ZeRO++") + " inside",
                               static_cast<double>(r.exchange) / exchange.every, r.total_memory, r.step_seconds,
                               exchange.losses[static_cast<std::size_t>(nearest - measured_islands.begin())],
                               *nearest == local.islands ? std::string() : std::to_string(*nearest) + " islands",
                               *nearest < local.islands});
        }
    }
}

bool fits_in(const settings& s, const option& o) { return s.memory == 0 || fits(s, o.memory); }

std::string loss_text(const option& o) {
    std::ostringstream text;
    text << std::showpos << std::fixed;
    text.precision(2);
    text << o.loss.percent << " %";
    if (o.loss.error != 0) text << " ± " << std::noshowpos << o.loss.error;
    if (!o.measured_on.empty()) text << ", " << o.measured_on;
    return text.str();
}

std::string bytes_text(double bytes) {
    return bytes >= 1e9 ? fixed(bytes / 1e9, 1) + " GB" : fixed(bytes / 1e6, 1) + " MB";
}

std::string seconds_text(double seconds) { return fixed(seconds, seconds < 10 ? 2 : 0) + " s"; }

}  // namespace

std::vector<option> predict_options(const settings& given) {
    const settings s = with_measured_formats(given);
    std::vector<option> options;
    add_synchronous(options, s);
    if (s.islands) add_local_steps(options, s, *s.islands);
    std::stable_sort(std::next(options.begin()), options.end(), [](const option& a, const option& b) {
        const double of_a = std::max(a.loss.percent, 0.0), of_b = std::max(b.loss.percent, 0.0);
        return of_a != of_b ? of_a < of_b : a.sent > b.sent;
    });
    return options;
}

std::size_t recommended(const settings& s, const std::vector<option>& options, double loss_budget) {
    const bool any = loss_budget == std::numeric_limits<double>::infinity();
    const auto allowed = [&](const option& o) {
        return fits_in(s, o) && (any || (o.loss.percent <= loss_budget && !o.on_fewer_islands));
    };
    double shortest = std::numeric_limits<double>::infinity();
    for (const option& o : options) {
        if (allowed(o)) shortest = std::min(shortest, o.seconds);
    }
    const auto found = std::find_if(options.begin(), options.end(),
                                    [&](const option& o) { return allowed(o) && o.seconds <= longest * shortest; });
    return static_cast<std::size_t>(found - options.begin());
}

void print_recommendation(std::ostream& out, const settings& s) {
    const std::vector<option> options = predict_options(s);
    const std::size_t best = recommended(s, options, s.loss_budget);
    const auto cells = [](const option& o) {
        return std::vector<std::string>{o.name, bytes_text(o.sent), bytes_text(static_cast<double>(o.memory)),
                                        seconds_text(o.seconds), loss_text(o)};
    };
    if (best == options.size()) {
        out << "Nothing with a loss of at most " << s.loss_budget << " % fits in "
            << bytes_text(s.memory - s.other_memory) << ".\n";
    } else {
        const zeropp::link_speed& link = s.islands ? s.islands->between : s.speed.inter_node;
        const int islands = s.islands ? s.islands->local.islands : s.ranks.groups();
        const std::string ranks = has_equal_groups(s.ranks)
                                      ? std::to_string(islands) + " x " + std::to_string(s.ranks.size() / islands)
                                      : nodes_text(s.ranks);
        const option& at_any_loss = options[recommended(s, options, std::numeric_limits<double>::infinity())];
        out << "| link | parameters | islands x ranks | ZeRO-3's step | loss at most " << s.loss_budget
            << " % | sent a step | memory of a rank | step | loss of 137 thousand parameters | at any loss | step "
               "| loss of 137 thousand parameters |\n"
               "|---|---:|---:|---:|---|---:|---:|---:|---:|---|---:|---:|\n| "
            << link.bytes_per_second * 8e-9 << " Gbit/s, " << link.latency_seconds * 1e3 << " ms | "
            << fixed(static_cast<double>(s.elements()) / 1e9, 1) << " billion | " << ranks << " | "
            << seconds_text(options.front().seconds);
        for (const std::string& cell : cells(options[best])) out << " | " << cell;
        out << " | " << at_any_loss.name << " | " << seconds_text(at_any_loss.seconds) << " | "
            << loss_text(at_any_loss) << " |\n";
    }
    out << "\nAll settings, least loss first: bytes that an island sends in a step, memory of a rank, step,\nloss of "
           "137 thousand parameters\n";
    for (const option& o : options) {
        out << "- ";
        for (const std::string& cell : cells(o)) out << cell << (cell == o.name ? ": " : ", ");
        out << (fits_in(s, o) ? "fits\n" : "does not fit\n");
    }
}

}  // namespace plan
