#include "library.hpp"

#include "advice.hpp"
#include "report.hpp"

#include <zeropp/plan/volume.hpp>
#include <zeropp/quantizer/residual_storage.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <variant>

using namespace zeropp_c;

namespace {

/// Format of the residuals of Q.
template <class Q>
zeropp::wire_format residuals_of() {
    return zeropp::wire_format_of(zeropp::residuals_in_int8::storage<Q>{});
}

plan::settings settings_of(const zeropp_plan& asked, int sites, double inter_site_gbit, double inter_site_us) {
    const auto format = [](const char* name) {
        return std::visit([](const auto& q) { return zeropp::wire_format_of(q); }, gather_formats::parse(name));
    };
    const std::span<const std::size_t> tensors(asked.tensors, asked.count);
    plan::require_tensors(tensors);
    if (asked.secondary_group < 0) {
        throw zeropp::precondition_error("secondary group size", "a number of ranks, or 0 for none",
                                         std::to_string(asked.secondary_group));
    }
    plan::settings s{
        .tensors{tensors.begin(), tensors.end()},
        .ranks = plan::ranks_of(asked.nodes, asked.ranks_per_node),
        .sites = sites,
        // The report has rows of hpZ and of differences in any case.
        .secondary_group_size = asked.secondary_group > 0 ? asked.secondary_group : asked.ranks_per_node,
        .plain = format(asked.plain),
        .plain_gradients = format(asked.plain_gradients),
        .weights = format(asked.weights),
        .secondary = format(asked.plain),
        .differences = std::visit(
            [](const auto& q) { return on_wire(q); },
            difference_formats::parse(asked.differences != nullptr ? asked.differences : "int2:64:signed:bf16:h32")),
        .difference_gradients = zeropp::wire_format_of(int2_rotated{})};
    std::visit(
        [&]<class Hops>(const Hops& hops) {
            s.gradients.intra_node = zeropp::wire_format_of(hops.at(zeropp::level<0>));
            s.gradients.inter_node = zeropp::wire_format_of(hops.at(zeropp::level<1>));
            // Without it, the planner takes the format between nodes.
            using inter_site = typename Hops::template at_level<2>;
            constexpr bool apart = !std::same_as<inter_site, typename Hops::template at_level<1>>;
            if constexpr (apart) s.gradients.inter_site = zeropp::wire_format_of(inter_site());
            if (asked.differences != nullptr) s.difference_gradients = s.gradients.inter_node;
            if (asked.error_feedback == 0) return;
            s.residuals = zeropp::level_formats{residuals_of<typename Hops::template at_level<0>>(),
                                                residuals_of<typename Hops::template at_level<1>>()};
            if constexpr (apart) s.residuals->inter_site = residuals_of<inter_site>();
            s.difference_residuals = s.residuals;
        },
        hops_named(asked.intra_node, asked.inter_node));
    plan::set_machine(s, {.intra_node_gbit = asked.intra_node_gbit,
                          .inter_node_gbit = asked.inter_node_gbit,
                          .intra_node_us = asked.intra_node_us,
                          .inter_node_us = asked.inter_node_us,
                          .inter_site_gbit = inter_site_gbit,
                          .inter_site_us = inter_site_us,
                          .codec_gb = asked.codec_gb,
                          .compute_ms = asked.compute_ms,
                          .memory_gb = asked.memory_gb,
                          .other_memory_gb = asked.other_memory_gb});
    return s;
}

zeropp_step step_of(const plan::run& run, const plan::layout& layout) {
    const zeropp::volume sent = run.sent.total();
    return {.inter_node = sent.inter_node + sent.inter_site,
            .seconds = run.time.without_overlap(),
            .overlapped_seconds = run.time.with_overlap(),
            .memory = layout.total()};
}

}  // namespace

zeropp_status zeropp_predict(const zeropp_plan* asked, zeropp_prediction* prediction) {
    const plan::machine_numbers unused;
    std::uint64_t inter_site[2];
    return zeropp_predict_in_sites(asked, 0, unused.inter_site_gbit, unused.inter_site_us, prediction, inter_site);
}

zeropp_status zeropp_predict_in_sites(const zeropp_plan* asked, int nodes_per_site, double inter_site_gbit,
                                      double inter_site_us, zeropp_prediction* prediction, uint64_t* inter_site) {
    return status_of([&] {
        if (nodes_per_site < 0 || (nodes_per_site != 0 && asked->nodes % nodes_per_site != 0)) {
            throw zeropp::precondition_error(
                "zeropp_c", "nodes per site that divide the " + std::to_string(asked->nodes) + " nodes",
                std::to_string(nodes_per_site));
        }
        const int sites = nodes_per_site == 0 ? 1 : asked->nodes / nodes_per_site;
        const plan::settings s = settings_of(*asked, sites, inter_site_gbit, inter_site_us);
        const bool differences = asked->differences != nullptr;
        const plan::parts none, zeropp{.qwz = true, .hpz = asked->secondary_group > 0, .qgz = true};
        const plan::parts all = differences ? plan::parts{.differences = true} : zeropp;
        const plan::run before = plan::predict_run(s, "ZeRO-3", none);
        const plan::run after = plan::predict_run(s,
                                                  differences ? "moving differences"
                                                  : all.hpz   ? "zeropp"
                                                              : "qwz+qgz",
                                                  all);
        thread_local std::string advice, report;
        advice = plan::on_the_whole(s, before, after);
        std::ostringstream text;
        plan::print_report(text, s, plan::predict(s));
        report = std::move(text).str();
        *prediction = {.before = step_of(before, plan::predict_layout(s, {}, none)),
                       .after = step_of(after, plan::predict_layout(s, {}, all)),
                       .gains = plan::gains(before, after) ? 1 : 0,
                       .advice = advice.c_str(),
                       .report = report.c_str()};
        inter_site[0] = before.sent.total().inter_site;
        inter_site[1] = after.sent.total().inter_site;
    });
}
