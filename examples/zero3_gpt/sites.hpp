#pragma once
/// \file
/// Nodes and secondary groups in sites, as options give them.

#include <zeropp/core/error.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/three_level.hpp>
#include <zeropp/topology/two_level.hpp>

#include <string>

namespace zero3_gpt {

/// Divides `nodes` over `sites`, in order. Throws zeropp::precondition_error unless that is exact and, with several
/// sites, nodes have equal numbers of consecutive ranks.
inline zeropp::three_level in_sites(int sites, const zeropp::two_level& nodes) {
    if (sites < 1 || nodes.groups() % sites != 0) {
        throw zeropp::precondition_error("sites", "a divisor of the " + std::to_string(nodes.groups()) + " nodes",
                                         std::to_string(sites));
    }
    if (sites == 1) return nodes;
    const zeropp::three_level divided(sites, nodes.groups() / sites, nodes.group_size(0));
    if (divided.nodes() != nodes) {
        throw zeropp::precondition_error("sites", "nodes of equal numbers of consecutive ranks",
                                         group_sizes_text(nodes) +
                                             (has_equal_groups(nodes) ? ", not all consecutive" : ""));
    }
    return divided;
}

/// The sites of `ranks`, divided into secondary groups of `of_group` consecutive ranks in place of nodes. Throws
/// zeropp::precondition_error unless that is exact.
inline zeropp::three_level in_groups(int of_group, const zeropp::three_level& ranks) {
    const int sites = ranks.extent(2), of_site = ranks.size() / sites;
    if (of_group < 1 || of_site % of_group != 0) {
        throw zeropp::precondition_error("zero_hpz_partition_size",
                                         "a divisor of the " + std::to_string(of_site) +
                                             (sites == 1 ? " ranks" : " ranks of a site"),
                                         std::to_string(of_group));
    }
    return {sites, of_site / of_group, of_group};
}

}  // namespace zero3_gpt
