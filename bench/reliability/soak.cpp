/// \file
/// Mixed collectives of random shapes, for minutes, while a program outside disturbs ranks and links. Every result is
/// compared with the reference. Each rank's resources go into its journal.

#include "reliability/journal.hpp"
#include "reliability/known_call.hpp"

#include <zeropp/mpi.hpp>

#include <CLI/CLI.hpp>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

/// MPI requests that have begun and not ended, counted by this file's MPI functions.
long open_requests = 0;

}  // namespace

// MPI functions by which mpi_transport begins and ends requests. They count, and call MPI.
extern "C" {
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
    ++open_requests;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
    ++open_requests;
    return PMPI_Irecv(data, count, type, from, tag, comm, request);
}
int MPI_Test(MPI_Request* request, int* completed, MPI_Status* status) {
    const bool was_open = *request != MPI_REQUEST_NULL;
    const int code = PMPI_Test(request, completed, status);
    if (was_open && *request == MPI_REQUEST_NULL) --open_requests;
    return code;
}
int MPI_Testany(int count, MPI_Request requests[], int* index, int* completed, MPI_Status* status) {
    const auto open = [=] { return count - std::count(requests, requests + count, MPI_REQUEST_NULL); };
    const auto were_open = open();
    const int code = PMPI_Testany(count, requests, index, completed, status);
    open_requests -= were_open - open();
    return code;
}
int MPI_Request_free(MPI_Request* request) {
    --open_requests;
    return PMPI_Request_free(request);
}
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* copy, MPI_Request* request) {
    ++open_requests;
    return PMPI_Comm_idup(comm, copy, request);
}
}

namespace {

using namespace zeropp_reliability;
using nlohmann::json;
using clock_type = std::chrono::steady_clock;

struct settings {
    std::string folder;
    double minutes = 30;
    std::uint64_t seed = 1;
};

constexpr std::chrono::seconds deadline{10};  // of each operation
constexpr std::size_t most_elements = 50000;

constexpr int calls_between_agreements = 10;
constexpr int calls_of_a_world = 200;
constexpr double seconds_between_samples = 5;

/// Random calls, equal on every rank, because every rank has the same seed.
class dice {
public:
    explicit dice(std::uint64_t seed) : random_(seed) {}

    /// A number from 0 to `sides` - 1. Standard distributions would differ between standard libraries.
    std::size_t roll(std::size_t sides) { return static_cast<std::size_t>(random_() % sides); }

    known_call call() {
        known_call c;
        c.what = static_cast<known_call::collective>(roll(4));
        // Log-uniform: small tensors are as frequent as large ones, and some have fewer elements than ranks.
        const double exponent = std::log2(static_cast<double>(most_elements)) * static_cast<double>(roll(1001)) / 1000;
        c.elements = static_cast<std::size_t>(std::exp2(exponent)) - 1;
        c.bfloat16 = roll(2) == 1;
        c.intra_node = known_quantizers()[roll(known_quantizers().size())];
        c.inter_node = c.intra_node == "int8:256" && roll(2) == 1 ? "int4:128:signed:bf16" : c.intra_node;
        c.chunks = static_cast<int>(roll(4)) + 1;
        c.mean = roll(2) == 1;
        c.seed = roll(1000000) + 1;
        return c;
    }

private:
    std::mt19937_64 random_;
};

std::vector<zeropp::two_level> topologies(int ranks) {
    std::vector<int> in_turn, alone;
    for (int r = 0; r != ranks; ++r) {
        in_turn.push_back(r % 2);
        alone.push_back(r);
    }
    return {zeropp::two_level(2, ranks / 2), zeropp::two_level(1, ranks),
            zeropp::two_level(std::span<const int>(in_turn)), zeropp::two_level(std::span<const int>(alone))};
}

/// Communicators of all topologies, each over a separate transport.
std::vector<std::unique_ptr<comm_type>> new_worlds() {
    std::vector<std::unique_ptr<comm_type>> worlds;
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (const zeropp::two_level& nodes : topologies(ranks)) {
        auto transport = std::make_shared<zeropp::mpi_transport>(
            zeropp::mpi_transport::duplicate(MPI_COMM_WORLD, {.timeout = deadline}));
        worlds.push_back(std::make_unique<comm_type>(nodes, any_host_transport(std::move(transport))));
    }
    return worlds;
}

/// Rank 0's `mine`, on all ranks, so that all stop after the same call. Collective.
bool agreed(comm_type& comm, bool mine) {
    std::vector<std::byte> all(static_cast<std::size_t>(comm.size()));
    const std::byte word{mine};
    comm.world().all_gather(zeropp::host{}, &word, all.data(), 1);
    return all[0] == std::byte{1};
}

json soak(const settings& s, journal& log) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    dice random(s.seed);
    long calls = 0, wrong = 0;
    std::uint64_t elements = 0;
    double slowest = 0;
    const clock_type::time_point begun = clock_type::now();
    const auto seconds = [&] { return std::chrono::duration<double>(clock_type::now() - begun).count(); };
    double sampled = 0;
    const auto facts = [&] {
        const held now = held::now();
        return json{{"seconds", seconds()},
                    {"calls", calls},
                    {"wrong", wrong},
                    {"elements", elements},
                    {"slowest", slowest},
                    {"descriptors", now.descriptors},
                    {"requests", open_requests},
                    {"resident_kib", now.resident_kib}};
    };
    std::vector<std::unique_ptr<comm_type>> worlds = new_worlds();
    log.write("ready", {{"pid", getpid()}});
    for (;; ++calls) {
        if (calls % calls_between_agreements == 0 && agreed(*worlds[0], seconds() > 60 * s.minutes)) break;
        if (calls % calls_of_a_world == calls_of_a_world - 1) {
            worlds.clear();
            worlds = new_worlds();
        }
        comm_type& comm = *worlds[random.roll(worlds.size())];
        const known_call c = random.call();
        const prepared_call call = prepare(c, comm.topology(), rank);
        const double before = seconds();
        const std::string difference = call(comm);
        slowest = std::max(slowest, seconds() - before);
        elements += c.elements;
        if (!difference.empty()) {
            ++wrong;
            log.write("wrong", {{"call", c.text()}, {"difference", difference}});
        }
        if (seconds() - sampled > seconds_between_samples) {
            sampled = seconds();
            log.write("sample", facts());
        }
    }
    worlds.clear();
    return facts();
}

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app("Collectives with known results, for minutes");
    app.add_option("--folder", s.folder, "where each rank writes its journal")
        ->required()
        ->check(CLI::ExistingDirectory);
    app.add_option("--minutes", s.minutes, "how long")->capture_default_str();
    app.add_option("--seed", s.seed, "of the calls")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    MPI_Init(nullptr, nullptr);
    try {
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        journal log(s.folder, rank);
        try {
            json end = soak(s, log);
            end["outcome"] = end["wrong"] == 0 ? "exact" : "wrong";
            log.write("end", end);
        } catch (const std::exception&) {
            json end = current_error();
            end["outcome"] = "error";
            log.write("end", end);
            throw;
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "reliability_soak: %s\n", e.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
}
