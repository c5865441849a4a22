#pragma once
/// \file
/// Multi-rank tests in one process: ranks are threads, a watchdog ends hangs, and expectations are checked at the end.

#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/watchdog.hpp"

#include <zeropp/transport/threads.hpp>

#include <chrono>
#include <exception>
#include <string>

namespace zeropp_test {

/// Runs work(transport, expect) on `ranks` threads and checks their expectations.
template <class Work>
void on_threads(int ranks, const std::string& what, Work work) {
    const std::string test = what + " on " + std::to_string(ranks) + " ranks";
    const watchdog guard(std::chrono::seconds(120), test);
    expectations expect;
    try {
        zeropp::run_on_threads(ranks, [&](zeropp::thread_transport& world) { work(world, expect); });
    } catch (const std::exception& e) {
        expect(false, std::string("no exception, given ") + e.what());
    }
    INFO(test);
    CHECK(expect.unmet() == "");
    CHECK(expect.met() > 0);
}

}  // namespace zeropp_test
