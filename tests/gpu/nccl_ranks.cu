/// NCCL with several ranks on one GPU: right for correctness, never for timing.
///
/// NCCL refuses two ranks of one host on the same GPU. Here each rank is a process that gives itself another host's
/// name (NCCL_HOSTID), so that they talk over sockets as if they were far apart. Each process is forked before anything
/// has touched CUDA, which does not survive a fork.

#include "gpu/collectives.cuh"

#include <zeropp/nccl.hpp>

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

namespace {

namespace gpu = zeropp_test::gpu;
using zeropp::nccl_transport;
using zeropp_test::expectations;

constexpr int skipped = 77;
constexpr unsigned seconds_for_a_job = 80;

/// A pipe that carries the id from the first rank to the others. Small writes to a pipe are not torn.
struct id_channel {
    std::array<int, 2> ends{};

    id_channel() {
        if (pipe(ends.data()) != 0) throw zeropp::error("pipe failed");
    }
    ncclUniqueId share(int ranks, int rank) const {
        ncclUniqueId id{};
        if (rank == 0) {
            id = nccl_transport::unique_id();
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

void talk_over_sockets(int rank) {
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

template <class T>
void check(const zeropp::two_level& ranks, nccl_transport& world, expectations& expect) {
    const std::size_t n = 40'003;
    std::vector<int> all;
    for (int r = 0; r != world.size(); ++r) all.push_back(r);
    gpu::match_host<T>(ranks, world.split(all), n, gpu::on_host_threads<T>(ranks, n), expect);
}

/// What the first ranks have reaches all, in place, for any number of them.
void check_broadcasts(nccl_transport& world, expectations& expect) {
    const gpu::owned_stream stream;
    for (int roots = 1; roots <= world.size(); ++roots) {
        const bool is_root = world.rank() < roots;
        std::vector<int> values(static_cast<std::size_t>(roots), -1), all;
        if (is_root) values[static_cast<std::size_t>(world.rank())] = 100 * world.rank() + roots;
        for (int r = 0; r != roots; ++r) all.push_back(100 * r + roots);
        const gpu::device_array<int> array(values);
        const std::byte* const own = reinterpret_cast<const std::byte*>(array.data() + (is_root ? world.rank() : 0));
        world.broadcast(stream.exec(), is_root ? own : nullptr, reinterpret_cast<std::byte*>(array.data()), sizeof(int),
                        roots);
        zeropp::wait_for(world, stream.exec());
        expect(array.read() == all, "what " + std::to_string(roots) + " roots have");
        expect(array.intact(), "no byte beside the array of a broadcast");
    }
}

/// What one rank does; its exit status.
int run_rank(int ranks, int rank, const id_channel& channel) {
    talk_over_sockets(rank);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return skipped;
    expectations expect;
    try {
        auto world = nccl_transport::create(channel.share(ranks, rank), ranks, rank);
        for (int per_node = 1; per_node <= ranks; per_node *= 2) {
            check<zeropp::bfloat16>(zeropp::two_level::of_size(ranks, per_node), world, expect);
        }
        check<float>(zeropp::two_level::of_size(ranks, 2), world, expect);
        check_broadcasts(world, expect);
        world.check();
    } catch (const std::exception& e) {
        expect(false, std::string("no exception, given ") + e.what());
    }
    if (expect.unmet().empty()) return 0;
    std::fprintf(stderr, "rank %d of %d:\n%s", rank, ranks, expect.unmet().c_str());
    return 1;
}

/// Runs `ranks` processes. 0 if all of them ended with 0, 77 if they found no GPU; when one fails, the others, which
/// may wait for it, are ended.
int run_job(int ranks) {
    const id_channel channel;
    std::vector<pid_t> children;
    for (int rank = 0; rank != ranks; ++rank) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(seconds_for_a_job);
            const int status = run_rank(ranks, rank, channel);
            std::fflush(nullptr);
            _exit(status);
        }
        if (child < 0) throw zeropp::error("fork failed");
        children.push_back(child);
    }
    int result = 0;
    while (!children.empty()) {
        int status = 0;
        const pid_t child = wait(&status);
        std::erase(children, child);
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        if (code == 0 || result == 1) continue;
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

}  // namespace

int main() {
    for (const int ranks : {2, 4}) {
        const int result = run_job(ranks);
        if (result == skipped) std::printf("skipped: no GPU here\n");
        if (result != 0) return result;
        std::printf("passed: %d ranks on one GPU\n", ranks);
        std::fflush(stdout);
    }
    return 0;
}
