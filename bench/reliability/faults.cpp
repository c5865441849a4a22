/// \file
/// Ranks call collectives with known results until one fails or all calls are made. Faults come from a rank that is
/// told to misbehave, or from outside. Each rank writes its end into its journal; run.sh makes a table of the journals.

#include "reliability/journal.hpp"
#include "reliability/known_call.hpp"
#include "support/fault_injecting.hpp"

#include <zeropp/checksummed.hpp>
#include <zeropp/mpi.hpp>

#include <CLI/CLI.hpp>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_reliability;
using nlohmann::json;
using zeropp_test::fault;
using zeropp_test::fault_injecting;
using clock_type = std::chrono::steady_clock;

/// A mistake of a rank's program in one call.
enum class mistake { none, other_collective, other_size, other_quantizer, twice };

struct settings {
    std::string folder;
    std::string transport = "mpi";
    bool checked = false;
    bool checksummed = false;
    std::chrono::milliseconds deadline{3000};
    int calls = 32;
    mistake wrong_call = mistake::none;
    int call = 8;                                                    // of the mistake: a gather; 11 is an all-reduce
    zeropp_test::planned_fault planned{.rank = 1, .operation = 15};  // the first of a reduce-scatter
};

/// Calls before the rank is ready: they make connections and grow buffers.
constexpr int warm_up_calls = 3;

known_call call_number(const settings& s, int number, int rank) {
    using collective = known_call::collective;
    const bool faulty = rank == s.planned.rank && number == s.call;
    int place = number;
    if (faulty && s.wrong_call == mistake::other_collective) ++place;
    // A prime number of elements.
    known_call c{.elements = 262147, .seed = static_cast<std::uint64_t>(place % 4 + 1) * 100};
    switch (place % 4) {
    case 0:
        c.intra_node = "fp32";
        break;
    case 1:
        c.what = collective::hierarchical_quantized_reduce_scatter;
        c.inter_node = "int4:128:signed:bf16";
        break;
    case 2:
        c.what = collective::secondary_partition_gather;
        c.intra_node = "bf16";
        break;
    case 3:
        c.what = collective::quantized_all_reduce;
        c.inter_node = "int4:128:signed:bf16";
        c.chunks = 2;
        break;
    }
    if (faulty && s.wrong_call == mistake::other_size) c.elements -= 4096;
    if (faulty && s.wrong_call == mistake::other_quantizer) c.intra_node = "int8:256";
    return c;
}

/// Calls by known_call::text(). They outlive errors, after which MPI may still write to their memory.
using prepared_calls = std::map<std::string, prepared_call>;

/// Runs a rank, and returns its end for the journal.
json life(const settings& s, any_host_transport world, prepared_calls& prepared, journal& log) {
    const int rank = world.rank();
    const zeropp::two_level nodes(2, world.size() / 2);
    for (int n = 0; n != s.calls; ++n) {
        const known_call c = call_number(s, n, rank);
        if (!prepared.contains(c.text())) prepared[c.text()] = prepare(c, nodes, rank);
    }
    auto comm = std::make_unique<comm_type>(nodes, std::move(world));

    json end{{"outcome", "exact"}};
    held before = held::now();
    clock_type::time_point begun;
    const auto seconds = [&] { return std::chrono::duration<double>(clock_type::now() - begun).count(); };
    int n = 0;
    const auto make_call = [&] {
        const known_call c = call_number(s, n, rank);
        log.write("call", {{"number", n}});
        begun = clock_type::now();
        const std::string difference = prepared.at(c.text())(*comm);
        if (difference.empty()) return;
        end["outcome"] = "wrong";
        end["what"] = c.text() + ": " + difference;
    };
    try {
        for (; n != s.calls && end["outcome"] == "exact"; ++n) {
            if (n == warm_up_calls) {
                before = held::now();
                log.write("ready", {{"pid", getpid()}});
            }
            make_call();
            if (s.wrong_call == mistake::twice && rank == s.planned.rank && n == s.call) make_call();
        }
    } catch (...) {
        end = current_error();
        end["outcome"] = "error";
        end["seconds"] = seconds();
    }
    end["call"] = n;
    if (end["outcome"] == "error") {
        // A failed transport must report its failure again, and at once if it cannot go on.
        log.write("failed", end);
        static std::byte probe[64], answers[64 * 64];
        begun = clock_type::now();
        try {
            comm->world().all_gather(zeropp::host{}, probe, answers, sizeof probe);
            end["next"] = "returned";
        } catch (...) {
            end["next"] = current_error()["type"];
        }
        end["next_seconds"] = seconds();
    }
    begun = clock_type::now();
    comm.reset();
    end["release_seconds"] = seconds();
    const held after = held::now();
    end["descriptors"] = {before.descriptors, after.descriptors};
    end["resident_kib"] = {before.resident_kib, after.resident_kib};
    return end;
}

/// Wraps `inner` as the settings ask.
template <class Transport>
any_host_transport dressed(const settings& s, Transport inner) {
    std::vector<int> everyone;
    for (int r = 0; r != inner.size(); ++r) everyone.push_back(r);
    using faulty = fault_injecting<Transport>;
    if (s.checksummed) {
        using checksummed = zeropp::checksummed<faulty>;
        return any_host_transport(checksummed(faulty(std::move(inner), s.planned)));
    }
    if (!s.checked) return any_host_transport(faulty(std::move(inner), s.planned));
    Transport control = inner.split(everyone);
    using checked = zeropp::checked<faulty, Transport>;
    return any_host_transport(checked(faulty(std::move(inner), s.planned), std::move(control)));
}

/// Runs a rank over the transport make(), and writes its journal.
template <class Make>
json live(const settings& s, int rank, prepared_calls& prepared, Make make) {
    journal log(s.folder, rank);
    const json end = life(s, make(), prepared, log);
    log.write("end", end);
    return end;
}

int on_threads(const settings& s) {
    std::vector<zeropp::thread_transport> handles = zeropp::thread_transport::create(4, {.timeout = s.deadline});
    std::vector<prepared_calls> prepared(handles.size());
    std::vector<std::jthread> ranks;
    for (std::size_t r = 0; r != handles.size(); ++r) {
        ranks.emplace_back([&s, r, &p = prepared[r], handle = std::move(handles[r])]() mutable {
            live(s, static_cast<int>(r), p, [&] { return dressed(s, std::move(handle)); });
        });
    }
    return 0;
}

int on_mpi(const settings& s) {
    MPI_Init(nullptr, nullptr);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    prepared_calls prepared;
    const json end = live(s, rank, prepared, [&] {
        return dressed(s, zeropp::mpi_transport::duplicate(MPI_COMM_WORLD, {.timeout = s.deadline}));
    });
    if (end["outcome"] == "exact") {
        MPI_Finalize();
        return 0;
    }
    // MPI_Finalize waits for all ranks, and mpirun kills all when one exits without it. So wait to be killed: every
    // rank can then finish its journal.
    for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
    settings s;
    const std::map<std::string, fault> faults{{"none", fault::none},         {"drop", fault::drop},
                                              {"delay", fault::delay},       {"truncate", fault::truncate},
                                              {"flip_bit", fault::flip_bit}, {"duplicate", fault::duplicate}};
    const std::map<std::string, mistake> mistakes{{"none", mistake::none},
                                                  {"other_collective", mistake::other_collective},
                                                  {"other_size", mistake::other_size},
                                                  {"other_quantizer", mistake::other_quantizer},
                                                  {"twice", mistake::twice}};
    int delay_ms = 0, deadline_ms = 3000;
    CLI::App app("Calls collectives with known results while things go wrong");
    app.add_option("--folder", s.folder, "where each rank writes its journal")
        ->required()
        ->check(CLI::ExistingDirectory);
    app.add_option("--transport", s.transport, "")->check(CLI::IsMember({"mpi", "threads"}))->capture_default_str();
    app.add_flag("--checked", s.checked, "ranks compare calls before they make them");
    app.add_flag("--checksummed", s.checksummed, "messages travel with checksums");
    app.add_option("--deadline", deadline_ms, "of each operation, in ms")->capture_default_str();
    app.add_option("--calls", s.calls, "how many, four collectives by turns")->capture_default_str();
    app.add_option("--mistake", s.wrong_call, "what rank 1 does wrong in call --call")
        ->transform(CLI::CheckedTransformer(mistakes));
    app.add_option("--call", s.call, "the call of --mistake")->capture_default_str();
    app.add_option("--fault", s.planned.what, "what the transport of rank 1 does wrong in operation --operation")
        ->transform(CLI::CheckedTransformer(faults));
    app.add_option("--operation", s.planned.operation, "the operation of --fault")->capture_default_str();
    app.add_option("--delay", delay_ms, "of the fault delay, in ms")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    s.deadline = std::chrono::milliseconds(deadline_ms);
    s.planned.delay = std::chrono::milliseconds(delay_ms);
    try {
        return s.transport == "mpi" ? on_mpi(s) : on_threads(s);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "reliability_faults: %s\n", e.what());
        return 1;
    }
}
