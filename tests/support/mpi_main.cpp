/// \file
/// main() of the MPI tests: every rank runs the same test cases, and a failure of one rank fails the run.
///
/// After each test case the ranks meet and add up their failures. A rank that left a test case early, by a failed
/// assertion or an exception, may leave the others in a collective call. They never come to the meeting, so the
/// watchdog aborts all ranks. It names the test case; the failed rank has printed the reason.

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include "support/catch.hpp"
#include "support/catch_session.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>
#include <thread>
#include <utility>

namespace {

using std::chrono::steady_clock;

int rank = 0;
int ranks = 1;
unsigned long long failures_of_all_ranks = 0;

/// Writes whole lines with "[rank/ranks] " before each, to tell the ranks' output apart.
class labelled_lines : public std::streambuf {
public:
    explicit labelled_lines(std::string label) : label_(std::move(label)) {}

    /// Writes the unfinished line too. sync() does not, because Catch2 flushes often.
    void finish() {
        if (!line_.empty()) overflow('\n');
        std::fflush(stdout);
    }

protected:
    int_type overflow(int_type c) override {
        if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
        line_.push_back(traits_type::to_char_type(c));
        if (line_.back() == '\n') {
            std::fputs((label_ + line_).c_str(), stdout);
            std::fflush(stdout);
            line_.clear();
        }
        return c;
    }

private:
    std::string label_;
    std::string line_;
};

/// Aborts all ranks if one step takes longer than `limit`.
class step_watchdog {
public:
    explicit step_watchdog(std::chrono::seconds limit) : limit_(limit), thread_([this] { watch(); }) {}

    ~step_watchdog() {
        {
            const std::lock_guard lock(mutex_);
            done_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }

    void begin(const std::string& step) {
        const std::lock_guard lock(mutex_);
        step_ = step;
        deadline_ = steady_clock::now() + limit_;
        changed_.notify_one();
    }

    /// Call if this rank's step has failed: the other ranks get at most 10 more seconds.
    void hurry() {
        const std::lock_guard lock(mutex_);
        deadline_ = std::min(deadline_, steady_clock::now() + std::chrono::seconds(10));
        changed_.notify_one();
    }

private:
    void watch() {
        std::unique_lock lock(mutex_);
        while (!done_ && steady_clock::now() < deadline_) {
            const auto deadline = deadline_;
            changed_.wait_until(lock, deadline);
        }
        if (done_) return;
        std::fprintf(stderr, "[%d/%d] watchdog: a rank hangs in, or never came to the end of: %s\n", rank, ranks,
                     step_.c_str());
        std::fflush(nullptr);
        MPI_Abort(MPI_COMM_WORLD, 1);
        std::_Exit(1);
    }

    std::chrono::seconds limit_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::string step_ = "start";
    steady_clock::time_point deadline_ = steady_clock::now() + limit_;
    std::thread thread_;  // last, because it uses all other members
};

step_watchdog* guard = nullptr;
MPI_Comm meeting = MPI_COMM_NULL;

unsigned long long sum_over_ranks(unsigned long long x) {
    unsigned long long sum = 0;
    MPI_Allreduce(&x, &sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, meeting);
    return sum;
}

#if CATCH_VERSION_MAJOR >= 3
using listener_base = Catch::EventListenerBase;
#else
using listener_base = Catch::TestEventListenerBase;
#endif

class meet_after_each_test_case : public listener_base {
public:
    using listener_base::listener_base;

    void testCaseStarting(const Catch::TestCaseInfo& info) override { guard->begin(info.name); }

    void testCaseEnded(const Catch::TestCaseStats& stats) override {
        if (stats.totals.assertions.failed > 0) guard->hurry();
        failures_of_all_ranks += sum_over_ranks(stats.totals.assertions.failed);
    }
};

std::chrono::seconds limit_from_environment() {
    const char* seconds = std::getenv("ZEROPP_TEST_CASE_TIMEOUT");
    return std::chrono::seconds(seconds ? std::atoi(seconds) : 60);
}

}  // namespace

CATCH_REGISTER_LISTENER(meet_after_each_test_case)

int main(int argc, char** argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
#if defined(MPICH_NUMVERSION)
    // MPICH passes errors of requests to these communicators' handlers, see basic_mpi_transport.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
#endif
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &meeting);

    labelled_lines lines("[" + std::to_string(rank) + "/" + std::to_string(ranks) + "] ");
    std::streambuf* const unlabelled = std::cout.rdbuf(&lines);
    bool failed = false;
    {
        step_watchdog watch(limit_from_environment());
        guard = &watch;
        const int result = zeropp_test::run_catch(argc, argv);
        watch.begin("the end of the run");
        // A wrong command line fails too, without any test case to count.
        failed = sum_over_ranks(result != 0) + failures_of_all_ranks > 0;
        lines.finish();
        MPI_Comm_free(&meeting);
        MPI_Finalize();
    }
    std::cout.rdbuf(unlabelled);
    return failed ? 1 : 0;
}
