#include "recommendation.hpp"

#include "advice.hpp"
#include "prediction.hpp"
#include "report.hpp"

#include <zeropp/core/error.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <ostream>
#include <sstream>
#include <string_view>
#include <vector>

namespace plan {

namespace {

/// Longest step, as a multiple of the shortest within the budget of loss, for which less loss is preferred.
constexpr double longest = 1.1;

/// Percent that a sum of two written figures may lie above their written sum.
constexpr double rounding = 1e-9;

/// A measured loss of a setting, with the model that was trained.
struct measurement {
    std::string_view setting;
    int every;  // inner steps between two exchanges; 0: synchronous
    int parts;  // islands, or nodes of synchronous training
    measured_loss loss;
};

/// Differences to synchronous bf16 in bench/results/pareto.md, means of three seeds, and pareto_largest.md, of two:
/// setting, steps between exchanges, islands or nodes, then percent, standard error, and parameters in millions.
constexpr measurement measurements[] = {
    {"ZeRO++", 0, 2, {-0.38, 0.45, 0.14}},
    {"signs, three levels", 0, 2, {1.47, 0.4, 0.14}},
    {"by layer", 0, 2, {-0.03, 0.35, 0.14}},
    {"16 bits", 8, 2, {1.04, 0.35, 0.14}},
    {"16 bits", 8, 4, {3.19, 0.32, 0.14}},
    {"16 bits", 8, 8, {4.86, 0.12, 0.14}},
    {"4 bits", 8, 2, {1.2, 0.24, 0.14}},
    {"4 bits", 8, 4, {3.6, 0.39, 0.14}},
    {"4 bits", 8, 8, {4.5, 0.38, 0.14}},
    {"2 bits", 8, 2, {0.68, 0.54, 0.14}},
    {"2 bits", 8, 4, {3.36, 0.47, 0.14}},
    {"2 bits", 8, 8, {6.86, 0.22, 0.14}},
    {"16 bits", 32, 2, {-0.49, 0.35, 0.14}},
    {"16 bits", 32, 4, {3.31, 0.24, 0.14}},
    {"16 bits", 32, 8, {9.92, 0.11, 0.14}},
    {"4 bits", 32, 2, {-0.43, 0.55, 0.14}},
    {"4 bits", 32, 4, {3.23, 0.28, 0.14}},
    {"4 bits", 32, 8, {10.09, 0.29, 0.14}},
    {"2 bits", 32, 2, {0.73, 0.58, 0.14}},
    {"2 bits", 32, 4, {4.92, 0.58, 0.14}},
    {"2 bits", 32, 8, {11.97, 0.1, 0.14}},
    {"16 bits", 128, 2, {6.64, 0.63, 0.14}},
    {"16 bits", 128, 4, {17.8, 0.43, 0.14}},
    {"16 bits", 128, 8, {30.27, 0.69, 0.14}},
    {"4 bits", 128, 2, {6.65, 0.66, 0.14}},
    {"4 bits", 128, 4, {18.14, 0.7, 0.14}},
    {"4 bits", 128, 8, {30.29, 0.82, 0.14}},
    {"2 bits", 128, 2, {13.57, 0.59, 0.14}},
    {"2 bits", 128, 4, {24.02, 0.64, 0.14}},
    {"2 bits", 128, 8, {36.12, 0.58, 0.14}},
    // A larger model.
    {"by layer", 0, 2, {-0.49, 0.31, 1.07}},
    {"4 bits", 32, 2, {3.42, 0.44, 1.07}},
    {"2 bits", 32, 2, {6.11, 0.38, 1.07}},
    // The largest model.
    {"ZeRO++", 0, 2, {-0.17, 0.5, 4.11}},
    {"signs, three levels", 0, 2, {-0.73, 0.05, 4.11}},
    {"by layer", 0, 2, {-0.02, 0.12, 4.11}},
    {"4 bits", 32, 2, {6.73, 1.31, 4.11}},
    {"4 bits", 32, 4, {14.09, 0.36, 4.11}},
};

/// The measurement of a setting for `parts` islands or nodes: at their number, the next larger one that was measured,
/// or the largest; there of the largest model.
const measurement& measurement_of(std::string_view setting, int every, int parts) {
    const auto better = [=](const measurement& a, const measurement& b) {
        if ((a.parts >= parts) != (b.parts >= parts)) return a.parts >= parts;
        if (a.parts != b.parts) return (a.parts < b.parts) == (a.parts >= parts);
        return a.loss.millions > b.loss.millions;
    };
    const measurement* best = nullptr;
    for (const measurement& m : measurements) {
        if (m.setting == setting && m.every == every && (best == nullptr || better(m, *best))) best = &m;
    }
    if (best == nullptr) throw zeropp::precondition_error("setting", "one that was measured", std::string(setting));
    return *best;
}

/// True for local steps if a larger model was measured on at most as many islands, with exchanges at least as often.
bool is_outgrown(const measurement& m) {
    return m.every != 0 && std::ranges::any_of(measurements, [&](const measurement& other) {
               return other.every != 0 && other.every <= m.every && other.parts <= m.parts &&
                      other.loss.millions > m.loss.millions;
           });
}

constexpr int intervals[] = {8, 32, 128};

struct exchange_format {
    const char* bits;
    const char* name;
};
constexpr exchange_format exchange_formats[] = {
    {"16 bits", "bf16"}, {"4 bits", "int4:128:signed:bf16:h32"}, {"2 bits", "lloyd4:128:h128"}};

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

/// Differences of bf16 weights that keep all bits, and gradients in ZeRO-3's format.
settings with_exact_differences(settings s) {
    s.differences = difference_format_named("exact", s.exact_bits);
    s.gradients = {s.plain_gradients, s.plain_gradients};
    s.difference_gradients = s.plain_gradients;
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
    const auto add = [&](const placement& at, const std::string& name, const parts& of) {
        run r = predict_run(at.on, name, of);
        if (of.hpz && s.islands) {
            // Secondary groups lie inside islands, whatever the topology of the other collectives.
            r.time.backward = predict_run(s, name, of).time.backward;
            r.by_node.backward = {};
        }
        const zeropp::volume sent = r.by_node.total();
        option& o = options.emplace_back(
            option{.name = name,
                   .topology = at.topology,
                   .sent = static_cast<double>(at.on.sites == 1 ? sent.inter_node : sent.inter_site) * at.crossing,
                   .memory = predict_layout(at.on, name, of).total(),
                   .seconds = r.time.without_overlap()});
        if (name == "ZeRO-3" || name == "exact differences") return;
        const measurement& m = measurement_of(name, 0, at.on.ranks.groups());
        o.loss = m.loss;
        if (m.parts != at.on.ranks.groups()) o.measured_on = std::to_string(m.parts) + " nodes";
    };
    add(on_rings(s), "ZeRO-3", {});
    const settings exact = with_exact_differences(s);
    for (const placement& at : placements(exact)) add(at, "exact differences", {.differences = true});
    for (const placement& at : placements(s)) {
        add(at, "ZeRO++", {.qwz = true, .hpz = true, .qgz = true});
        add(at, "signs, three levels", {.differences = true});
        if (s.by_layer) add(at, "by layer", {.by_layer = true});
    }
}

void add_local_steps(std::vector<option>& options, settings s, const island_settings& given) {
    zeropp::local_steps& local = s.islands.emplace(given).local;
    local.delay = 0;
    for (const int every : intervals) {
        for (const exchange_format& format : exchange_formats) {
            local.every = every;
            local.differences = format_named(format.name);
            local.residuals = residual_format("int8", format.name);
            const measurement& m = measurement_of(format.bits, every, local.islands);
            const std::vector<local_run> runs = predict_local_runs(s);
            for (const std::size_t inside : {0u, 1u}) {
                const local_run& r = runs[inside];
                options.push_back(
                    {.name = std::string(format.bits) + " every " + std::to_string(every) + " steps" +
                             (inside == 0 ? "" : ", ZeRO++ inside"),
                     .sent = static_cast<double>(r.exchange) / every,
                     .memory = r.total_memory,
                     .seconds = r.step_seconds,
                     .loss = m.loss,
                     .measured_on = m.parts == local.islands ? std::string() : std::to_string(m.parts) + " islands",
                     .in_budgets = m.parts >= local.islands && !is_outgrown(m)});
            }
        }
    }
}

bool fits_in(const settings& s, const option& o) { return s.memory == 0 || fits(s, o.memory); }

bool is_lossless(const option& o) { return o.loss.millions == 0; }

std::string loss_text(const option& o) {
    if (is_lossless(o)) return "none";
    std::ostringstream text;
    text << std::showpos << std::fixed;
    text.precision(2);
    text << o.loss.percent << std::noshowpos << " ± " << o.loss.error << " %, " << o.loss.millions << " M";
    if (!o.measured_on.empty()) text << ", " << o.measured_on;
    return text.str();
}

std::string bytes_text(double bytes) {
    return bytes >= 1e9 ? fixed(bytes / 1e9, 1) + " GB" : fixed(bytes / 1e6, 1) + " MB";
}

std::string seconds_text(double seconds) { return fixed(seconds, seconds < 10 ? 2 : 0) + " s"; }

/// Of the options that are allowed, the first one with a step at most a tenth longer than their shortest;
/// `options.end()` if there is none.
template <class Allowed>
std::vector<option>::const_iterator first_of_fast(const std::vector<option>& options, Allowed allowed) {
    double shortest = std::numeric_limits<double>::infinity();
    for (const option& o : options) {
        if (allowed(o)) shortest = std::min(shortest, o.seconds);
    }
    return std::ranges::find_if(options,
                                [&](const option& o) { return allowed(o) && o.seconds <= longest * shortest; });
}

}  // namespace

std::vector<option> predict_options(const settings& given) {
    const settings s = with_measured_formats(given);
    std::vector<option> options;
    add_synchronous(options, s);
    if (s.islands) add_local_steps(options, s, *s.islands);
    std::stable_sort(std::next(options.begin()), options.end(), [](const option& a, const option& b) {
        if (is_lossless(a) != is_lossless(b)) return is_lossless(a);
        const double of_a = std::max(a.loss.percent, 0.0), of_b = std::max(b.loss.percent, 0.0);
        return of_a != of_b ? of_a < of_b : a.sent > b.sent;
    });
    return options;
}

std::vector<recommendation> recommended(const settings& s, const std::vector<option>& options) {
    const auto fitting = [&](const option& o) { return fits_in(s, o); };
    const auto at_no_loss = [&](const option& o) { return fits_in(s, o) && is_lossless(o); };
    const auto in_budget = [&](const option& o) {
        return at_no_loss(o) ||
               (fits_in(s, o) && o.in_budgets && o.loss.percent + o.loss.error <= s.loss_budget + rounding);
    };
    std::ostringstream budget;
    budget << "loss at most " << s.loss_budget << " %";
    return {{"no loss", first_of_fast(options, at_no_loss)},
            {budget.str(), first_of_fast(options, in_budget)},
            {"any loss", first_of_fast(options, fitting)}};
}

void print_recommendation(std::ostream& out, const settings& s) {
    const std::vector<option> options = predict_options(s);
    const std::vector<recommendation> choices = recommended(s, options);
    const zeropp::link_speed& link = s.islands ? s.islands->between : s.speed.inter_node;
    const int islands = s.islands ? s.islands->local.islands : s.ranks.groups();
    std::ostringstream heads, row;
    heads << "| islands and link | ZeRO-3 |";
    row << "| "
        << (has_equal_groups(s.ranks) ? std::to_string(islands) + " x " + std::to_string(s.ranks.size() / islands)
                                      : nodes_text(s.ranks))
        << ", " << link.bytes_per_second * 8e-9 << " Gbit/s, " << link.latency_seconds * 1e3 << " ms | "
        << seconds_text(options.front().seconds) << " |";
    for (const recommendation& choice : choices) {
        const bool lossless = &choice == &choices.front(), found = choice.best != options.end();
        heads << ' ' << choice.head << (lossless ? " |" : " | measured |");
        row << ' ' << (found ? choice.best->name + ", " + seconds_text(choice.best->seconds) : "nothing fits") << " |";
        if (!lossless) row << ' ' << (found ? loss_text(*choice.best) : "") << " |";
    }
    out << heads.str() << "\n|---|---:|---|---|---|---|---|\n" << row.str() << '\n';

    out << "\nAll settings, least loss first: bytes that an island sends in a step, memory of a rank, step, loss, and\n"
           "millions of parameters of the model that was measured\n";
    for (auto o = options.begin(); o != options.end(); ++o) {
        out << "- " << o->name << o->topology << ": " << bytes_text(o->sent) << ", "
            << bytes_text(static_cast<double>(o->memory)) << ", " << seconds_text(o->seconds) << ", " << loss_text(*o)
            << (fits_in(s, *o) ? ", fits" : ", does not fit") << (o->in_budgets ? "" : "; in no budget");
        for (const recommendation& choice : choices) {
            if (choice.best == o) out << "; best at " << choice.head;
        }
        out << '\n';
    }
}

}  // namespace plan
