#pragma once
/// \file
/// NCCL with several ranks on one GPU: right for correctness, never for timing.
///
/// NCCL refuses two ranks of one host on the same GPU. Here each rank is a process that gives itself another host's
/// name (NCCL_HOSTID), so that they talk over sockets as if they were far apart. Each process is forked before anything
/// has touched CUDA, which does not survive a fork.

#include "support/expectations.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/transport/nccl.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace zeropp_test::gpu {

inline constexpr int skipped = 77;
inline constexpr unsigned seconds_for_a_job = 80;

/// A pipe that carries the id from the first rank to the others. Small writes to a pipe are not torn.
struct id_channel {
    std::array<int, 2> ends{};

    id_channel() {
        if (pipe(ends.data()) != 0) throw zeropp::error("pipe failed");
    }
    ncclUniqueId share(int ranks, int rank) const {
        ncclUniqueId id{};
        if (rank == 0) {
            id = zeropp::nccl_transport::unique_id();
            for (int r = 1; r != ranks; ++r) {
                const ssize_t written = write(ends[1], &id, sizeof id);
                if (written != static_cast<ssize_t>(sizeof id)) throw zeropp::error("write failed");
            }
        } else if (read(ends[0], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) {
            throw zeropp::error("no id came from the first rank");
        }
        return id;
    }
};

inline void talk_over_sockets(int rank) {
    setenv("NCCL_HOSTID", ("zeropp-test-" + std::to_string(rank)).c_str(), 1);
    for (const auto& [name, value] : {std::pair{"NCCL_P2P_DISABLE", "1"},
                                      {"NCCL_SHM_DISABLE", "1"},
                                      {"NCCL_IB_DISABLE", "1"},
                                      {"NCCL_NET", "Socket"},
                                      {"NCCL_SOCKET_IFNAME", "lo"},
                                      {"NCCL_DEBUG", "WARN"}}) {
        setenv(name, value, 0);
    }
}

/// Runs work(rank, channel, expect) on each of `ranks` processes, of which `dead` may end in any way. 0 if all others
/// ended with 0, 77 if they found no GPU. When one fails, the others, which may wait for it, are ended.
template <class Work>
int run_job(int ranks, Work work, int dead = -1) {
    const id_channel channel;
    const auto run_rank = [&](int rank) {
        talk_over_sockets(rank);
        int devices = 0;
        if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return skipped;
        expectations expect;
        try {
            work(rank, channel, expect);
        } catch (const std::exception& e) {
            expect(false, std::string("no exception, given ") + e.what());
        }
        if (expect.unmet().empty()) return 0;
        std::fprintf(stderr, "rank %d of %d:\n%s", rank, ranks, expect.unmet().c_str());
        return 1;
    };
    std::vector<pid_t> children;
    for (int rank = 0; rank != ranks; ++rank) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(seconds_for_a_job);
            const int status = run_rank(rank);
            std::fflush(nullptr);
            _exit(status);
        }
        if (child < 0) throw zeropp::error("fork failed");
        children.push_back(child);
    }
    const pid_t expected_dead = dead < 0 ? 0 : children[static_cast<std::size_t>(dead)];
    int result = 0;
    while (!children.empty()) {
        int status = 0;
        const pid_t child = wait(&status);
        std::erase(children, child);
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        if (code == 0 || result == 1 || (child == expected_dead && code != skipped)) continue;
        result = code == skipped ? skipped : 1;
        if (WIFSIGNALED(status)) {
            std::fprintf(stderr, "a rank of %d was ended by signal %d%s\n", ranks, WTERMSIG(status),
                         WTERMSIG(status) == SIGALRM ? ": it took too long" : "");
        }
        for (const pid_t other : children) {
            if (result == 1) kill(other, SIGKILL);
        }
    }
    return result;
}

}  // namespace zeropp_test::gpu
