/// \file
/// Runs the collectives of one training step, one by one, under a real MPI or SimGrid's. Measures the time of each, and
/// checks that it sends exactly the planned bytes.

#include "phases.hpp"
#include "simulation.hpp"
#include "sites.hpp"
#include "support/json_file.hpp"

#include <zeropp/mpi.hpp>

#include <CLI/CLI.hpp>
#include <mpi.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace zeropp_scale;
using zeropp::detail::require_mpi;

struct settings {
    std::vector<int> node_sizes;
    int sites = 1;
    std::size_t elements_per_rank = 2048;
    int repeats = 1;
    std::string json_file;
};

/// The largest `mine` of all ranks. Collective.
double largest(double mine) {
    double all = 0;
    require_mpi(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD), "MPI_Allreduce");
    return all;
}

/// Seconds of call() on the slowest rank, after a barrier. Collective.
template <class Call>
double seconds_of(Call call) {
    require_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    const double start = MPI_Wtime();
    call();
    return largest(MPI_Wtime() - start);
}

/// Number of untimed calls first; none in a simulation, where all calls are equal.
int warm_ups() { return simulated() ? 0 : 1; }

/// Seconds of each of `repeats` calls. Checks the last result. Collective.
std::vector<double> timed(const work& w, int repeats) {
    for (int i = 0; i != warm_ups(); ++i) w.call();
    std::vector<double> seconds;
    for (int i = 0; i != repeats; ++i) seconds.push_back(seconds_of(w.call));
    w.check();
    return seconds;
}

std::string text(const zeropp::volume& v) {
    return std::to_string(v.intra_node) + " bytes inside, " + std::to_string(v.inter_node) + " across nodes and " +
           std::to_string(v.inter_site) + " across sites";
}

/// Throws zeropp::error unless this rank has sent the planned bytes. MPI's own collectives are not checked.
void require_planned(const phase& p, const zeropp::volume& sent, std::uint64_t calls) {
    if (p.native || sent == p.planned * calls) return;
    throw zeropp::error(p.name + ": expected the planned " + text(p.planned * calls) + ", given " + text(sent));
}

/// Number of messages that a node sends to other nodes along a level.
int messages_of_node(const zeropp::three_level& ranks, int level) {
    return zeropp::largest_group_size(ranks) * (zeropp::extent(ranks, level) - 1);
}

/// Bytes that each link has carried between two measurements; empty without a simulator.
std::vector<double> difference_of(std::vector<double> after, const std::vector<double>& before) {
    for (std::size_t link = 0; link != after.size(); ++link) after[link] -= before[link];
    return after;
}

/// Bytes that each link has carried so far, read between barriers; only on the reporting rank. Collective.
std::vector<double> settled(bool reporting) {
    for (int i = 0; i != 2; ++i) require_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    return reporting ? bytes_over_links() : std::vector<double>();
}

/// Bytes of the barriers and the reduction around each phase, for each link. Collective.
std::vector<double> carried_by_timing(bool reporting) {
    const std::vector<double> before = settled(reporting);
    seconds_of([] {});
    return difference_of(settled(reporting), before);
}

/// Bytes of the simulator's handshake for each inter-node message; only on the reporting rank. Collective.
double carried_by_handshake(const zeropp::three_level& ranks, bool reporting, const std::vector<double>& by_timing) {
    constexpr std::size_t bytes = 64;
    zeropp::communicator comm(ranks, zeropp::mpi_transport::duplicate(MPI_COMM_WORLD));
    std::vector<std::byte> all(static_cast<std::size_t>(zeropp::slot_count(ranks)) * bytes);
    const std::vector<double> before = settled(reporting);
    const int level = zeropp::extent(ranks, 1) > 1 ? 1 : 2;
    seconds_of([&] { comm.gather(level, zeropp::host{}, all.data(), bytes); });
    const std::vector<double> carried = difference_of(settled(reporting), before);
    if (carried.empty() || ranks.groups() == 1) return 0;
    return (carried.front() - by_timing.front()) / static_cast<double>(messages_of_node(ranks, level)) -
           static_cast<double>(bytes * static_cast<std::size_t>(zeropp::slots_beyond(ranks, level)));
}

/// Throws zeropp::error unless the link of each node and, with several sites, of each site has carried about as many
/// bytes as are planned, `handshake` bytes for each of its messages, and `by_timing`. The simulator extrapolates from
/// rates and is not exact to the byte; `counting` is.
void require_planned_links(const phase& p, const zeropp::three_level& ranks, int repeats, double handshake,
                           const std::vector<double>& carried, const std::vector<double>& by_timing) {
    const auto nodes = static_cast<std::size_t>(ranks.groups());
    const int to_sites = p.planned.inter_site == 0 ? 0 : messages_of_node(ranks, 2);
    const int of_node = (p.planned.inter_node == 0 ? 0 : messages_of_node(ranks, 1)) + to_sites;
    const std::size_t links = nodes + (ranks.extent(2) == 1 ? 0 : static_cast<std::size_t>(ranks.extent(2)));
    for (std::size_t link = 0; link != std::min(links, carried.size()); ++link) {
        const bool of_a_node = link < nodes;
        const int messages = of_a_node ? of_node : to_sites * zeropp::extent(ranks, 1);
        const double planned =
            (static_cast<double>(of_a_node ? p.by_node : p.by_site) + messages * handshake) * repeats;
        if (std::fabs(carried[link] - by_timing[link] - planned) > 0.02 * planned + 2 * by_timing[link]) {
            throw zeropp::error(
                p.name + ": expected about the planned " + std::to_string(planned) + " bytes across the link of " +
                (of_a_node ? "node " : "site ") + std::to_string(of_a_node ? link : link - nodes) + ", and " +
                std::to_string(by_timing[link]) + " to time them, given " + std::to_string(carried[link]));
        }
    }
}

/// Measures a phase. Returns its row for the file, and prints a line if `reporting`. Collective.
nlohmann::ordered_json measure(const phase& p, const settings& s, const zeropp::three_level& ranks, bool reporting) {
    const std::vector<double> by_timing = carried_by_timing(reporting);
    const double handshake = simulated() ? carried_by_handshake(ranks, reporting, by_timing) : 0;
    const work w = p.prepare();
    p.take_counted();
    const std::vector<double> before = settled(reporting);
    const std::vector<double> seconds = timed(w, s.repeats);
    const std::vector<double> carried = difference_of(settled(reporting), before);
    require_planned(p, p.take_counted(), static_cast<std::uint64_t>(s.repeats + warm_ups()));

    if (!p.native) require_planned_links(p, ranks, s.repeats, handshake, carried, by_timing);
    nlohmann::ordered_json row{
        {"phase", p.name},
        {"formats", p.formats},
        {"native", p.native},
        {"seconds", seconds},
        {"sent_by_rank", {{"intra_node", p.planned.intra_node}, {"inter_node", p.planned.inter_node}}},
        {"inter_node_by_node", p.by_node}};
    const auto sites = carried.begin() + (carried.empty() ? 0 : ranks.groups());
    if (sites != carried.begin()) row["carried_by_link"] = *std::max_element(carried.begin(), sites);
    if (sites != carried.end()) row["carried_by_site"] = *std::max_element(sites, carried.end());
    if (ranks.extent(2) != 1) row["inter_site_by_site"] = p.by_site;
    if (!simulated() && p.prepare_silent) {
        const work quiet = p.prepare_silent();
        quiet.call();
        for (int i = 0; i != s.repeats; ++i) row["codec_seconds"].push_back(seconds_of(quiet.call));
    }
    if (reporting) {
        std::printf("%-22s %-44s %14.6f %16llu\n", p.name.c_str(), p.formats.c_str(),
                    *std::min_element(seconds.begin(), seconds.end()), static_cast<unsigned long long>(p.by_node));
        std::fflush(stdout);
    }
    return row;
}

/// Measures parameters of a simulated platform: the rates of a node and of a rank within it while all send, and
/// latencies of empty messages. Within a node, ranks move bytes only while they are awake, so the library's transport
/// measures the rate. Collective.
nlohmann::ordered_json measure_links(int rank, int size, int ranks_per_node) {
    constexpr int bytes = 2 << 20;
    constexpr int messages = 4;
    constexpr int round_trips = 20;
    constexpr int attempts = 5;
    std::vector<char> out(bytes), in(bytes);
    const auto rate = [&](auto exchange, int peers) {
        const double seconds = seconds_of([&] {
            for (int i = 0; i != messages; ++i) exchange();
        });
        return static_cast<double>(bytes) * peers * messages / seconds;
    };
    const auto latency = [&](int peer) {
        const double seconds = seconds_of([&] {
            for (int i = 0; i != round_trips; ++i) {
                if (rank == 0) {
                    require_mpi(MPI_Send(out.data(), 0, MPI_BYTE, peer, 0, MPI_COMM_WORLD), "MPI_Send");
                    require_mpi(MPI_Recv(in.data(), 0, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                                "MPI_Recv");
                } else if (rank == peer) {
                    require_mpi(MPI_Recv(in.data(), 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
                    require_mpi(MPI_Send(out.data(), 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD), "MPI_Send");
                }
            }
        });
        return seconds / (2 * round_trips);
    };
    const int next = (rank + ranks_per_node) % size;
    const int previous = (rank + size - ranks_per_node) % size;
    const auto across_nodes = [&] {
        require_mpi(MPI_Sendrecv(out.data(), bytes, MPI_BYTE, next, 0, in.data(), bytes, MPI_BYTE, previous, 0,
                                 MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                    "MPI_Sendrecv");
    };
    auto world = zeropp::mpi_transport::duplicate(MPI_COMM_WORLD);
    std::vector<int> members(static_cast<std::size_t>(ranks_per_node));
    std::iota(members.begin(), members.end(), rank - rank % ranks_per_node);
    auto node = world.split(members);
    std::vector<std::byte> own(bytes), of_node(members.size() * bytes);
    const auto inside_nodes = [&] { node.all_gather(zeropp::host{}, own.data(), of_node.data(), bytes); };
    // The best of several attempts, because other programs may disturb some.
    double inter_node = 0, intra_node = 0;
    double inter_node_latency = std::numeric_limits<double>::infinity(), intra_node_latency = inter_node_latency;
    for (int i = 0; i != attempts; ++i) {
        inter_node = std::max(inter_node, rate(across_nodes, ranks_per_node));
        intra_node = std::max(intra_node, rate(inside_nodes, ranks_per_node - 1));
        inter_node_latency = std::min(inter_node_latency, latency(ranks_per_node));
        intra_node_latency = std::min(intra_node_latency, latency(1));
    }
    return {{"inter_node_bytes_per_second", inter_node},
            {"intra_node_bytes_per_second", intra_node},
            {"inter_node_latency_seconds", inter_node_latency},
            {"intra_node_latency_seconds", intra_node_latency}};
}

int run(const settings& s) {
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const bool reporting = rank == 0;
    const zeropp::three_level ranks = zero3_gpt::in_sites(s.sites, zeropp::two_level::of_nodes(s.node_sizes));
    const std::size_t elements = s.elements_per_rank * static_cast<std::size_t>(size);
    nlohmann::ordered_json json{{"simulated", simulated()}, {"node_sizes", s.node_sizes}, {"elements", elements}};
    if (ranks.extent(2) != 1) json["sites"] = ranks.extent(2);
    if (!simulated() && zeropp::has_equal_groups(ranks)) json["links"] = measure_links(rank, size, ranks.group_size(0));
    if (reporting) {
        count_links();
        const std::string sites = ranks.extent(2) == 1 ? "" : " in " + std::to_string(ranks.extent(2)) + " sites";
        std::printf("%s%s, a tensor of %zu elements, %s\n%-22s %-44s %14s %16s\n",
                    zeropp::group_sizes_text(ranks).c_str(), sites.c_str(), elements,
                    simulated() ? "simulated" : "measured", "phase", "formats", "seconds", "bytes by a node");
    }
    for (const phase& p : phases_of_step(ranks, elements)) json["phases"].push_back(measure(p, s, ranks, reporting));
    if (reporting && !s.json_file.empty()) zeropp_bench::write_json(s.json_file, json);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Runs the collectives of one training step and holds their bytes against the plan.", "step");
    settings s;
    app.add_option("--node-sizes", s.node_sizes, "ranks on each node, e.g. 8,8,7")
        ->required()
        ->delimiter(',')
        ->check(CLI::PositiveNumber);
    app.add_option("--sites", s.sites, "sites, of as many of the nodes each")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--elements-per-rank", s.elements_per_rank, "the tensor, divided by the ranks; even")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--repeats", s.repeats, "calls of each collective")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--json", s.json_file, "write everything to this file");
    CLI11_PARSE(app, argc, argv);

    MPI_Init(&argc, &argv);
    int status = 1;
    try {
        status = run(s);
    } catch (const std::exception& e) {
        std::cerr << "step: " << e.what() << std::endl;
        // Other ranks may wait for this one. Under SMPI all ranks are one process, and MPI_Abort returns.
        if (simulated()) std::_Exit(status);
        MPI_Abort(MPI_COMM_WORLD, status);
    }
    MPI_Finalize();
    return status;
}
