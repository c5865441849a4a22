#include "report.hpp"

#include "advice.hpp"

#include <initializer_list>
#include <iomanip>
#include <ostream>

namespace plan {

std::string nodes_text(const zeropp::two_level& ranks) {
    std::string text = std::to_string(ranks.groups()) + " nodes ";
    if (has_equal_groups(ranks)) return text + "x " + std::to_string(ranks.group_size(0)) + " ranks";
    for (int g = 0; g != ranks.groups(); ++g) text += (g == 0 ? "of " : ", ") + std::to_string(ranks.group_size(g));
    return text + " ranks";
}

namespace {

constexpr int wide = 12;
constexpr int name_wide = 27;

double of(std::uint64_t bytes) { return static_cast<double>(bytes); }

void head(std::ostream& out, const std::string& first, std::initializer_list<const char*> columns) {
    out << std::left << std::setw(name_wide) << first << std::right;
    for (const char* column : columns) out << std::setw(wide) << column;
    out << '\n';
}

void row(std::ostream& out, const std::string& first, const std::vector<std::string>& cells) {
    out << std::left << std::setw(name_wide) << first << std::right;
    for (const std::string& cell : cells) out << std::setw(wide) << cell;
    out << '\n';
}

std::string gb(double bytes) { return fixed(bytes / 1e9, 3); }

/// `before` / `now` as text; "all" if `now` is 0, "-" if both are.
std::string times_less(double before, double now) {
    if (now <= 0) return before <= 0 ? "-" : "all";
    return fixed(before / now, 2) + "x";
}

std::string percent_less(double before, double now) {
    return before <= 0 ? "-" : fixed((before - now) / before * 100, 1) + " %";
}

void print_bytes(std::ostream& out, const settings& s, const std::vector<run>& runs) {
    const double m = 2.0 * of(s.elements());
    out << "GB sent in a step; M = " << gb(m) << " GB, the parameters in 16 bits\n\n";
    head(out, "across nodes, by a node",
         {"forward", "backward", "gradients", "total", "in M", "codes, M", "reduction", "savings"});
    const double before = of(runs.front().by_node.total().inter_node);
    for (const run& r : runs) {
        const zeropp::volume total = r.by_node.total();
        row(out, r.name,
            {gb(of(r.by_node.forward.inter_node)), gb(of(r.by_node.backward.inter_node)),
             gb(of(r.by_node.gradients.inter_node)), gb(of(total.inter_node)), fixed(of(total.inter_node) / m, 3),
             s.ranks.groups() > 1 ? fixed(r.code_bits / 16, 3) : "-", times_less(before, of(total.inter_node)),
             percent_less(before, of(total.inter_node))});
    }
    out << '\n';
    head(out, "inside nodes, by a rank", {"forward", "backward", "gradients", "total", "reduction"});
    for (const run& r : runs) {
        row(out, r.name,
            {gb(of(r.sent.forward.intra_node)), gb(of(r.sent.backward.intra_node)), gb(of(r.sent.gradients.intra_node)),
             gb(of(r.sent.total().intra_node)),
             times_less(of(runs.front().sent.total().intra_node), of(r.sent.total().intra_node))});
    }
    out << '\n';
    if (s.sites != 1) {
        head(out, "across sites, by a site", {"forward", "backward", "gradients", "total", "in M", "reduction"});
        const auto by_site = [&](const zeropp::volume& of_all) { return of(of_all.inter_site) / s.sites; };
        for (const run& r : runs) {
            const double total = by_site(r.by_all.total());
            row(out, r.name,
                {gb(by_site(r.by_all.forward)), gb(by_site(r.by_all.backward)), gb(by_site(r.by_all.gradients)),
                 gb(total), fixed(total / m, 3), times_less(by_site(runs.front().by_all.total()), total)});
        }
        out << '\n';
    }
    head(out, "in all", {"rank across", "node across", "all across", "node inside", "all inside"});
    for (const run& r : runs) {
        const zeropp::volume by_node = r.by_node.total();
        const zeropp::volume by_all = r.by_all.total();
        row(out, r.name,
            {gb(of(r.sent.total().inter_node)), gb(of(by_node.inter_node)), gb(of(by_all.inter_node)),
             gb(of(by_node.intra_node)), gb(of(by_all.intra_node))});
    }
}

void print_times(std::ostream& out, const std::vector<run>& runs) {
    const zeropp::step_time& before = runs.front().time;
    const auto ms = [](double seconds) { return fixed(seconds * 1e3, 1); };
    head(out, "ms", {"forward", "backward", "gradients", "all of it", "step", "speed-up", "overlapped", "speed-up"});
    for (const run& r : runs) {
        row(out, r.name,
            {ms(r.time.forward.total()), ms(r.time.backward.total()), ms(r.time.gradients.total()),
             ms(r.time.communication()), ms(r.time.without_overlap()),
             times_less(before.without_overlap(), r.time.without_overlap()), ms(r.time.with_overlap()),
             times_less(before.with_overlap(), r.time.with_overlap())});
    }
}

void print_memory(std::ostream& out, const settings& s, const std::vector<layout>& layouts) {
    head(out, "GB on each rank",
         {"parameters", "gradients", "optimizer", "secondary", "residuals", "states", "scratch", "total", "fits"});
    for (const layout& l : layouts) {
        row(out, l.name,
            {fixed(of(l.states.parameters) / 1e9, 2), fixed(of(l.states.gradients) / 1e9, 2),
             fixed(of(l.states.optimizer) / 1e9, 2), fixed(of(l.secondary) / 1e9, 2), fixed(of(l.residuals) / 1e9, 2),
             fixed(of(l.total() - l.scratch) / 1e9, 2), fixed(of(l.scratch) / 1e9, 2), fixed(of(l.total()) / 1e9, 2),
             s.memory > 0 ? (fits(s, l.total()) ? "yes" : "no") : "-"});
    }
}

void print_local_steps(std::ostream& out, const settings& s, const island_settings& islands,
                       const std::vector<local_run>& runs) {
    const zeropp::local_steps& local = islands.local;
    out << local.islands << " islands of " << s.ranks.groups() / local.islands << " nodes exchange in "
        << local.differences.name.str() << " every " << local.every << " steps, used " << local.delay
        << " steps later; an island has " << islands.between.bytes_per_second * 8e-9 << " Gbit/s and "
        << islands.between.latency_seconds * 1e6 << " us to others\n\n";
    const auto ms = [](double seconds) { return fixed(seconds * 1e3, 1); };
    head(out, "local steps",
         {"GB each", "GB a step", "bits/param", "ms each", "inner, ms", "step, ms", "outer, GB", "total, GB", "fits"});
    for (const local_run& r : runs) {
        row(out, r.name,
            {gb(of(r.exchange)), gb(of(r.exchange) / local.every), fixed(r.bits, 4), ms(r.exchange_seconds),
             ms(r.inner_seconds), ms(r.step_seconds), fixed(of(r.outer_memory) / 1e9, 2),
             fixed(of(r.total_memory) / 1e9, 2), s.memory > 0 ? (fits(s, r.total_memory) ? "yes" : "no") : "-"});
    }
    out << '\n';
}

void print_mirrors(std::ostream& out, const mirror_cost& cost) {
    const double sent = of(cost.sent.inter_node);
    out << "mirrors of both moments in " << cost.how.format.name.str() << " every " << cost.how.every
        << " steps: a rank sends " << gb(sent) << " GB across nodes for each, " << gb(sent / cost.how.every)
        << " GB a step, and keeps " << gb(of(cost.memory)) << " GB\n\n";
}

}  // namespace

void print_report(std::ostream& out, const settings& s, const prediction& p) {
    out << s.elements() << " parameters in " << s.tensors.size() << " tensors";
    if (s.by_layer) out << ", of which embeddings and head are " << s.by_layer->embeddings << ",";
    out << " on " << nodes_text(s.ranks);
    if (s.sites != 1) out << " in " << s.sites << " sites";
    out << "\n"
        << "zero3 sends " << s.plain.name.str() << "; qwz weights in " << s.weights.name.str() << "; qgz gradients in "
        << s.gradients.intra_node.name.str() << " inside and " << s.gradients.inter_node.name.str() << " across"
        << (s.sites == 1 ? "" : ", between sites in " + s.gradients.at(2).name.str()) << ", in " << s.chunks
        << (s.chunks == 1 ? " chunk" : " chunks") << "; hpz keeps weights in " << s.secondary.name.str()
        << " in groups of " << group_text(s.secondary_group_size) << "; differences of what nodes keep in "
        << s.differences.name.str() << ", gradients across beside them in " << s.difference_gradients.name.str();
    if (s.by_layer) {
        out << "; by_layer differences in " << s.by_layer->differences.name.str() << ", gradients across of blocks in "
            << s.by_layer->block_gradients.name.str() << " and of embeddings and head in "
            << s.by_layer->embedding_gradients.name.str();
    }
    out << "\na rank " << s.speed.intra_node.bytes_per_second * 8e-9 << " Gbit/s and "
        << s.speed.intra_node.latency_seconds * 1e6 << " us inside, a node "
        << s.speed.inter_node.bytes_per_second * 8e-9 << " Gbit/s and " << s.speed.inter_node.latency_seconds * 1e6
        << " us across";
    if (s.sites != 1) {
        out << ", a site " << s.speed.inter_site.bytes_per_second * 8e-9 << " Gbit/s and "
            << s.speed.inter_site.latency_seconds * 1e6 << " us";
    }
    out << ", a codec " << s.speed.codec_bytes_per_second * 1e-9 << " GB/s, "
        << (s.compute.forward + s.compute.backward) * 1e3 << " ms of computation\n\n";
    print_bytes(out, s, p.runs);
    out << '\n';
    print_times(out, p.runs);
    out << '\n';
    print_memory(out, s, p.layouts);
    out << '\n';
    if (s.islands) print_local_steps(out, s, *s.islands, p.local_runs);
    if (p.mirrors) print_mirrors(out, *p.mirrors);
    for (const std::string& advice : advise(s, p)) out << "- " << advice << '\n';
}

}  // namespace plan
