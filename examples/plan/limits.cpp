#include "settings.hpp"

#include <zeropp/core/error.hpp>

#include <sstream>
#include <utility>

namespace plan {

namespace {

std::string text_of(double number) {
    std::ostringstream text;
    text << number;
    return std::move(text).str();
}

}  // namespace

double in_range(const std::string& name, double given, double least, double most) {
    if (given >= least && given <= most) return given;  // NaN is not
    throw zeropp::precondition_error(name, "a number from " + text_of(least) + " to " + text_of(most), text_of(given));
}

zeropp::link_speed link_of(const std::string& name, double gbit, double us) {
    return {in_range(name + " Gbit/s", gbit, 1e-6, 1e6) * 1e9 / 8, in_range(name + " microseconds", us, 0, 1e9) * 1e-6};
}

void set_machine(settings& s, const machine_numbers& m) {
    s.speed = {link_of("intra-node", m.intra_node_gbit, m.intra_node_us),
               link_of("inter-node", m.inter_node_gbit, m.inter_node_us),
               in_range("codec GB/s", m.codec_gb, 0, 1e6) * 1e9,
               link_of("inter-site", m.inter_site_gbit, m.inter_site_us)};
    s.compute = zeropp::compute_time::of_step(in_range("milliseconds of computation", m.compute_ms, 0, 1e12) * 1e-3);
    s.memory = in_range("GB of memory", m.memory_gb, 0, 1e6) * 1e9;
    s.other_memory = in_range("GB of other memory", m.other_memory_gb, 0, 1e6) * 1e9;
    if (m.memory_gb != 0 && m.other_memory_gb >= m.memory_gb) {
        throw zeropp::precondition_error("GB of other memory",
                                         "fewer than the " + text_of(m.memory_gb) + " of a GPU's memory",
                                         text_of(m.other_memory_gb));
    }
}

void require_tensors(std::span<const std::size_t> tensors) {
    if (tensors.empty() || tensors.size() > most_tensors) {
        throw zeropp::precondition_error("tensors", "1 to " + std::to_string(most_tensors) + " tensors",
                                         std::to_string(tensors.size()));
    }
    std::size_t elements = 0;
    for (const std::size_t n : tensors) {
        if (n > most_parameters - elements) {
            throw zeropp::precondition_error("tensors", "at most " + std::to_string(most_parameters) + " parameters",
                                             "more");
        }
        elements += n;
    }
    if (elements == 0) throw zeropp::precondition_error("tensors", "at least 1 parameter", "0");
}

zeropp::two_level ranks_of(int nodes, int ranks_per_node) {
    if (nodes > 0 && ranks_per_node > most_ranks / nodes) {
        throw zeropp::precondition_error("nodes", "at most " + std::to_string(most_ranks) + " ranks",
                                         std::to_string(nodes) + " x " + std::to_string(ranks_per_node));
    }
    return {nodes, ranks_per_node};
}

}  // namespace plan
