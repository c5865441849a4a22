#include "advice.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace plan {

namespace {

/// Smallest saving worth a mention, as a fraction of the step.
constexpr double notable = 0.05;

std::string milliseconds(double seconds) { return fixed(seconds * 1e3, 1) + " ms"; }
std::string gigabytes(double bytes) { return fixed(bytes / 1e9, 2) + " GB"; }

/// Saved part of `before`, as a fraction.
double saved(double before, double after) { return (before - after) / before; }

std::string percent(double fraction) { return fixed(fraction * 100, 1) + " %"; }

std::string on_part(const run& zero3, const run& part) {
    const double plain = saved(zero3.time.without_overlap(), part.time.without_overlap());
    const double hidden = saved(zero3.time.with_overlap(), part.time.with_overlap());
    const char* const verdict = std::max(plain, hidden) < notable    ? " alone does not pay: "
                                : std::min(plain, hidden) >= notable ? " alone pays: "
                                : plain >= notable                   ? " alone pays unless communication overlaps: "
                                                                     : " alone pays only if communication overlaps: ";
    return part.name + verdict + percent(plain) + " of the step without overlap, " + percent(hidden) + " with.";
}

std::string on_secondary(const settings& s, const prediction& p) {
    std::string fitting;
    const secondary_choice* best = nullptr;
    for (const secondary_choice& c : p.choices) {
        if (!fits(s, c.total_memory)) continue;
        fitting += (fitting.empty() ? "" : ", ") + group_text(c.group_size);
        if (!best || c.seconds < best->seconds) best = &c;
    }
    const double room = s.memory - s.other_memory;
    if (!best) {
        const auto least = std::min_element(p.choices.begin(), p.choices.end(), [](const auto& a, const auto& b) {
            return a.total_memory < b.total_memory;
        });
        const layout& zero3 = p.layouts[2];
        const std::uint64_t residuals = p.layouts[4].residuals;
        return "No secondary partition fits in " + gigabytes(room) + ": all of ZeRO++ needs " +
               gigabytes(static_cast<double>(least->total_memory)) + " at least" +
               (residuals > 0 ? ", " + gigabytes(static_cast<double>(residuals)) + " of it for residuals" : "") +
               "; ZeRO-3 needs " + gigabytes(static_cast<double>(zero3.total())) + ".";
    }
    std::string text = "Secondary groups that fit in " + gigabytes(room) + ": " + fitting + ". The fastest is " +
                       group_text(best->group_size) + ", of " + gigabytes(static_cast<double>(best->memory)) +
                       " on each rank";
    const bool crosses = best->sent.inter_node != 0 || best->sent.inter_site != 0;
    return text + (crosses ? ", which still crosses nodes." : ", and sends nothing across nodes.");
}

std::string on_latency(const settings& s, const run& zeropp) {
    settings patient = s;
    patient.speed.intra_node.latency_seconds = 0;
    patient.speed.inter_node.latency_seconds = 0;
    patient.speed.inter_site.latency_seconds = 0;
    const double without = all_of_zeropp(predict_runs(patient)).time.communication();
    const double share = saved(zeropp.time.communication(), without);
    if (zeropp.time.communication() <= 0 || share < 0.25) return {};
    return "Latency is " + percent(share) + " of what communication is left with ZeRO++: fewer and larger tensors" +
           (s.chunks > 1 || s.gather_chunks > 1 ? ", or fewer chunks," : "") + " would be faster.";
}

}  // namespace

std::string fixed(double number, int digits) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(digits) << number;
    return text.str();
}

bool fits(const settings& s, std::uint64_t bytes) { return static_cast<double>(bytes) + s.other_memory <= s.memory; }

bool gains(const run& zero3, const run& compressed) {
    return std::max(saved(zero3.time.without_overlap(), compressed.time.without_overlap()),
                    saved(zero3.time.with_overlap(), compressed.time.with_overlap())) >= notable;
}

std::string on_the_whole(const settings& s, const run& zero3, const run& compressed) {
    const double plain = saved(zero3.time.without_overlap(), compressed.time.without_overlap());
    const double hidden = saved(zero3.time.with_overlap(), compressed.time.with_overlap());
    const double computing = s.compute.forward + s.compute.backward;
    const std::string share =
        "communication is " + milliseconds(zero3.time.communication()) + " of ZeRO-3's step" +
        (computing > 0 ? ", " + percent(zero3.time.communication() / zero3.time.without_overlap())
                       : " (without its time of computation, nothing can be said of the whole step)");
    if (s.ranks.size() == 1) return "No gain on one rank: nothing is communicated.";
    if (gains(zero3, compressed)) {
        return (compressed.name == "zeropp" ? "All of ZeRO++" : compressed.name) + " saves " + percent(plain) +
               " of the step without overlap and " + percent(hidden) +
               " where communication overlaps computation entirely: " + share + ".";
    }
    const bool alone = s.ranks.groups() == 1;
    const bool in_sites = s.sites != 1;
    const zeropp::link_speed& slowest = alone ? s.speed.intra_node : in_sites ? s.speed.inter_site : s.speed.inter_node;
    std::ostringstream rate;
    rate << slowest.bytes_per_second * 8e-9;
    std::string because = std::string(alone ? "nothing crosses nodes, and inside, at " : "at ") + rate.str() +
                          " Gbit/s" +
                          (alone      ? ", "
                           : in_sites ? " between sites, "
                                      : " between nodes, ") +
                          share;
    const double codec =
        compressed.time.forward.codec + compressed.time.backward.codec + compressed.time.gradients.codec;
    const double longer = compressed.time.communication() - zero3.time.communication();
    if (longer > 0 && longer < codec) {
        because += "; fewer bytes save less than quantizing takes, " + milliseconds(codec);
    } else if (computing > 0 && zero3.time.with_overlap() < (1 + notable) * computing) {
        because += ", and overlaps with computation";
    }
    return std::string("No gain expected") + (alone ? " on one node" : "") + ", because " + because + ".";
}

std::vector<std::string> advise(const settings& s, const prediction& p) {
    const run& zero3 = p.runs.front();
    std::vector<std::string> advice{on_the_whole(s, zero3, all_of_zeropp(p.runs))};
    if (zero3.time.communication() > 0) {
        for (const std::size_t part : {1u, 2u, 3u}) advice.push_back(on_part(zero3, p.runs[part]));
    }
    if (s.memory > 0) {
        advice.push_back(on_secondary(s, p));
    } else {
        advice.emplace_back("Which secondary groups fit can be said where the memory of a GPU is given.");
    }
    if (const std::string latency = on_latency(s, all_of_zeropp(p.runs)); !latency.empty()) advice.push_back(latency);
    return advice;
}

}  // namespace plan
