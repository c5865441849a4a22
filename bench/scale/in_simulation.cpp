/// \file
/// Under SMPI ranks are coroutines of one thread, and time is the simulator's. While it waits for messages, the library
/// reads a clock, yields and sleeps. The linker's --wrap redirects these three calls here.

#include "simulation.hpp"

#include <simgrid/link.h>
#include <simgrid/plugins/load.h>
#include <simgrid/s4u.hpp>

#include <chrono>
#include <ctime>
#include <string>

namespace zeropp_scale {

namespace {

/// Simulated time of a yield, between two polls of a waiting rank.
constexpr double seconds_of_a_yield = 1e-6;

/// Calls f(link) for the link of each node to others, and then of each site.
template <class F>
void for_each_link(F f) {
    for (const std::string of : {"nic", "site"}) {
        for (int i = 0;
             const const_sg_link_t link = simgrid::s4u::Link::by_name_or_null(of + std::to_string(i) + "_UP"); ++i) {
            f(link);
        }
    }
}

}  // namespace

std::chrono::steady_clock::time_point now() asm("__wrap__ZNSt6chrono3_V212steady_clock3nowEv");
std::chrono::steady_clock::time_point now() {
    const std::chrono::duration<double> seconds(simgrid::s4u::Engine::get_clock());
    return std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(seconds));
}

int yield() asm("__wrap_sched_yield");
int yield() {
    simgrid::s4u::this_actor::sleep_for(seconds_of_a_yield);
    return 0;
}

int sleep(const std::timespec* time, std::timespec* left) asm("__wrap_nanosleep");
int sleep(const std::timespec* time, std::timespec*) {
    simgrid::s4u::this_actor::sleep_for(static_cast<double>(time->tv_sec) + 1e-9 * static_cast<double>(time->tv_nsec));
    return 0;
}

bool simulated() { return true; }

void count_links() {
    for_each_link([](const_sg_link_t link) { sg_link_load_track(link); });
}

std::vector<double> bytes_over_links() {
    std::vector<double> bytes;
    for_each_link([&](const_sg_link_t link) { bytes.push_back(sg_link_get_cum_load(link)); });
    return bytes;
}

}  // namespace zeropp_scale
