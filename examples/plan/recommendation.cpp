#include "recommendation.hpp"

#include "advice.hpp"
#include "prediction.hpp"

#include <algorithm>
#include <limits>
#include <ostream>
#include <sstream>
#include <vector>

namespace plan {

namespace {

/// Longest step, as a multiple of the shortest within the budget of loss, for which less loss is preferred.
constexpr double longest = 1.1;

// bench/results/pareto.md: two seeds, 3072 steps.
constexpr measured_loss zero3_loss{0, 0};
constexpr measured_loss zeropp_loss{0.02, 0.4};
constexpr measured_loss three_levels_loss{2.2, 0.96};
constexpr measured_loss by_layer_loss{0.51, 0.11};

struct loss_on {
    int islands;
    measured_loss loss;
};

struct measured_exchange {
    int every;
    const char* bits;
    const char* format;
    std::vector<loss_on> losses;  // fewest islands first
};

std::vector<measured_exchange> measured_exchanges() {
    return {
        {8, "16 bits", "bf16", {{2, {0.59, 0.6}}}},
        {8, "4 bits", "int4:128:signed:bf16:h32", {{2, {0.77, 0.21}}}},
        {8, "2 bits", "lloyd4:128:h128", {{2, {0.95, 0.38}}}},
        {32, "16 bits", "bf16", {{2, {-0.19, 0.04}}}},
        {32, "4 bits", "int4:128:signed:bf16:h32", {{2, {-0.39, 0.26}}, {4, {3.24, 0.41}}, {8, {9.89, 0.13}}}},
        {32, "2 bits", "lloyd4:128:h128", {{2, {0.6, 0.24}}, {4, {5.44, 0.02}}}},
        {128, "16 bits", "bf16", {{2, {7.32, 0.06}}}},
        {128, "4 bits", "int4:128:signed:bf16:h32", {{2, {7.39, 0.11}}}},
        {128, "2 bits", "lloyd4:128:h128", {{2, {13.79, 0.06}}}},
    };
}

/// The same machine for synchronous training, islands in the place of nodes: a hop inside an island takes the links of
/// its nodes.
settings across_islands(const settings& s, const island_settings& given) {
    settings across = s;
    const int islands = given.local.islands;
    across.ranks = zeropp::two_level(islands, s.ranks.size() / islands);
    across.speed.inter_node = given.between;
    if (s.ranks.groups() != islands) {
        across.speed.intra_node = s.speed.inter_node;
        across.speed.intra_node.bytes_per_second /= s.ranks.group_size(0);
    }
    return across;
}

void add_synchronous(std::vector<option>& options, settings s) {
    s.differences = format_named("lloyd2:128:unbiased:h128");
    s.difference_gradients = format_named("lloyd3:128:h128");
    const auto add = [&](const char* name, const parts& of, const measured_loss& loss) {
        const run r = predict_run(s, name, of);
        options.push_back({name, static_cast<double>(r.by_node.total().inter_node), predict_layout(s, name, of).total(),
                           r.time.without_overlap(), loss});
    };
    add("ZeRO-3", {}, zero3_loss);
    add("ZeRO++", {.qwz = true, .hpz = true, .qgz = true}, zeropp_loss);
    add("differences: signs, three levels", {.differences = true}, three_levels_loss);
    if (s.by_layer) add("differences by layer", {.by_layer = true}, by_layer_loss);
}

void add_local_steps(std::vector<option>& options, settings s, const island_settings& given) {
    zeropp::local_steps& local = s.islands.emplace(given).local;
    local.delay = 0;
    for (const measured_exchange& exchange : measured_exchanges()) {
        const auto& losses = exchange.losses;
        const auto found =
            std::find_if(losses.begin(), losses.end(), [&](const auto& of) { return of.islands >= local.islands; });
        const loss_on& nearest = found != losses.end() ? *found : losses.back();
        local.every = exchange.every;
        local.differences = format_named(exchange.format);
        local.residuals = residual_format("int8", exchange.format);
        const std::vector<local_run> runs = predict_local_runs(s);
        for (const std::size_t inside : {0u, 1u}) {
            const local_run& r = runs[inside];
            options.push_back({std::string(exchange.bits) + " every " + std::to_string(exchange.every) + " steps, " +
                                   (inside == 0 ? "ZeRO-3" : "ZeRO++") + " inside",
                               static_cast<double>(r.exchange) / exchange.every, r.total_memory, r.step_seconds,
                               nearest.loss, nearest.islands == local.islands ? 0 : nearest.islands,
                               nearest.islands < local.islands});
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
    if (o.islands != 0) text << ", " << std::noshowpos << o.islands << " islands";
    return text.str();
}

std::string bytes_text(double bytes) {
    return bytes >= 1e9 ? fixed(bytes / 1e9, 1) + " GB" : fixed(bytes / 1e6, 1) + " MB";
}

std::string seconds_text(double seconds) { return fixed(seconds, seconds < 10 ? 2 : 0) + " s"; }

}  // namespace

std::vector<option> predict_options(const settings& s) {
    std::vector<option> options;
    add_synchronous(options, s.islands ? across_islands(s, *s.islands) : s);
    if (s.islands) add_local_steps(options, s, *s.islands);
    std::stable_sort(options.begin(), options.end(), [](const option& a, const option& b) {
        const double of_a = std::max(a.loss.percent, 0.0), of_b = std::max(b.loss.percent, 0.0);
        return of_a != of_b ? of_a < of_b : a.sent > b.sent;
    });
    return options;
}

std::size_t recommended(const settings& s, const std::vector<option>& options, double loss_budget) {
    const bool any = loss_budget == std::numeric_limits<double>::infinity();
    const auto allowed = [&](const option& o) {
        return fits_in(s, o) && (any || (o.loss.percent <= loss_budget && !o.on_fewer));
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
        const option& fastest = options[recommended(s, options, std::numeric_limits<double>::infinity())];
        out << "| link | parameters | islands x ranks | ZeRO-3's step | loss at most " << s.loss_budget
            << " % | sent a step | memory of a rank | step | loss here | at any loss | step | loss here |\n"
               "|---|---:|---:|---:|---|---:|---:|---:|---:|---|---:|---:|\n| "
            << link.bytes_per_second * 8e-9 << " Gbit/s, " << link.latency_seconds * 1e3 << " ms | "
            << fixed(static_cast<double>(s.elements()) / 1e9, 1) << " billion | " << islands << " x "
            << s.ranks.size() / islands << " | " << seconds_text(options.front().seconds);
        for (const std::string& cell : cells(options[best])) out << " | " << cell;
        out << " | " << fastest.name << " | " << seconds_text(fastest.seconds) << " | " << loss_text(fastest) << " |\n";
    }
    out << "\nAll settings, least loss first: bytes that an island sends in a step, memory of a rank, step, loss\n";
    for (const option& o : options) {
        out << "- ";
        for (const std::string& cell : cells(o)) out << cell << (cell == o.name ? ": " : ", ");
        out << (fits_in(s, o) ? "fits\n" : "does not fit\n");
    }
}

}  // namespace plan
