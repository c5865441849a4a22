#pragma once
/// \file
/// Whole collectives on the emulated device, one thread and one or two streams for each rank, against the same
/// collectives on the host: the same bits on every rank. Compiled once (collectives.cpp, collectives_levels.cpp,
/// counted_calls.cpp), for any transport.

#include "support/watchdog.hpp"

#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/threads.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace zeropp_test::simt {

/// A topology, with a name for reports.
template <zeropp::topology Topology>
struct named_ranks {
    std::string name;
    Topology topology;
};
using ranks_and_nodes = named_ranks<zeropp::two_level>;

inline std::vector<ranks_and_nodes> topologies() {
    static constexpr int irregular[] = {5, 2, 9, 2, 5, 9};
    return {{"1 x 1", {1, 1}},
            {"1 x 4", {1, 4}},
            {"4 x 1", {4, 1}},
            {"2 x 2", {2, 2}},
            {"3 x 2", {3, 2}},
            {"3 x 2, irregular", zeropp::two_level(irregular)},
            {"3 + 1 + 2", zeropp::two_level::of_nodes({3, 1, 2})}};
}

/// Runs work(world) on a thread for each rank.
template <class Topology = zeropp::two_level, class Work>
void on_ranks(const named_ranks<Topology>& ranks, const std::string& what, Work work) {
    const watchdog guard(std::chrono::seconds(120), what + " on " + ranks.name);
    zeropp::run_on_threads(ranks.topology.size(), work);
}

/// Returns when all ranks have called it.
inline void meet(zeropp::thread_transport& world) {
    const std::byte here{};
    std::vector<std::byte> all(static_cast<std::size_t>(world.size()));
    world.all_gather(zeropp::host(), &here, all.data(), 1);
}

/// A rank's transport between devices; the ranks are threads that `world` connects.
/// Of any type, so that what is expensive to compile is compiled once for all of them.
using any_transport = zeropp::any_transport<zeropp::cuda_stream>;
using make_transport = std::function<any_transport(zeropp::thread_transport& world)>;

/// Gathers on all topologies, a few sizes each, another quantizer and element type each time. Leaves nothing on the
/// device.
void check_all_gathers(const make_transport& make);

/// The same for reductions, with other options each time.
void check_reduce_scatters(const make_transport& make);

/// The same for all-reduces of lists of tensors, by both algorithms, one of 300 tensors among them.
void check_all_reduces(const make_transport& make);

/// The same for updates of lists of tensors.
void check_updates(const make_transport& make);

/// Calls of the CUDA runtime and of NCCL that all ranks make in each collective, from its second call on, over two
/// nodes of two ranks: on one stream, and in two chunks on two. Only the doubles count calls.
struct counted_calls {
    std::string collective;
    std::map<std::string, std::size_t> calls;
};
std::vector<counted_calls> calls_of_collectives(const make_transport& make);

/// All-to-alls, gathers and reductions on two levels and on three.
void check_levels(const make_transport& make);

}  // namespace zeropp_test::simt
