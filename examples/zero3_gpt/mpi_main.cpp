/// zero3_gpt under mpirun: a rank is a process.

#include "cuda_mpi.hpp"
#include "host_device.hpp"
#include "host_trainer.hpp"
#include "sites.hpp"

#include <zeropp/mpi.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace {

/// Preparation of one rank before ranks communicate; `problem` is its error.
struct preparation {
    std::optional<zero3_gpt::settings> settings;
    std::optional<zero3_gpt::workload> work;
    std::optional<zeropp::three_level> nodes;
    std::string problem;
    int exit_code = 0;
};

/// `found` are the nodes as MPI sees them.
preparation prepare(int argc, char** argv, const zeropp::mpi_transport& world, const zeropp::two_level& found) {
    preparation p;
    try {
        p.settings = zero3_gpt::read_settings(argc, argv, world.rank() == 0, p.exit_code, world.size());
        if (!p.settings) return p;
        if (p.settings->device == zero3_gpt::device_kind::cuda) {
            if (p.settings->timeout.count() != 0)
                throw zeropp::error("--timeout: expected --device host with mpirun, given cuda");
            zero3_gpt::require_cuda_for_mpi();
        }
        p.work.emplace(*p.settings);
        const int given = p.settings->ranks_per_node;
        p.nodes = zero3_gpt::in_sites(p.settings->sites,
                                      given == 0 ? found : zeropp::two_level::of_size(world.size(), given));
        for (const auto& run : p.settings->runs) {
            const zero3_gpt::island_ranks island(*p.nodes, run.config.zeropp.islands(), world.rank());
            static_cast<void>(zero3_gpt::in_groups(run.config.zero.hpz_partition_size, island.nodes));
        }
    } catch (const std::exception& e) {
        p.problem = e.what();
        p.exit_code = 1;
    }
    return p;
}

/// Lowest rank on which `condition` holds, or the number of ranks.
int lowest_rank(bool condition, const zeropp::mpi_transport& world) {
    int lowest = condition ? world.rank() : world.size();
    MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, world.native());
    return lowest;
}

/// A world with this timeout, which survivors can shrink. Throws zeropp::precondition_error if MPI cannot.
zeropp::mpi_transport world_with(std::chrono::milliseconds timeout) {
    const zeropp::transport_options options{timeout};
    static_cast<void>(zeropp::mpi_transport::duplicate(MPI_COMM_WORLD, options).shrink());
    return zeropp::mpi_transport::duplicate(MPI_COMM_WORLD, options);
}

/// Sets `ends_alone` if other ranks may have died, for which MPI_Finalize would wait.
int run(int argc, char** argv, bool& ends_alone) {
    zeropp::mpi_transport world = zeropp::mpi_transport::duplicate(MPI_COMM_WORLD);
    preparation p = prepare(argc, argv, world, zeropp::shared_memory_nodes(world));
    const auto any_problem = [&] {
        const int failed = lowest_rank(!p.problem.empty(), world);
        if (failed == world.rank()) std::cerr << "zero3_gpt: " << p.problem << std::endl;
        return failed != world.size();
    };
    if (any_problem()) return 1;
    if (!p.settings) return p.exit_code;
    if (p.settings->timeout.count() != 0) {
        std::optional<zeropp::mpi_transport> with_timeout;
        try {
            with_timeout = world_with(p.settings->timeout);
        } catch (const zeropp::precondition_error& e) {
            p.problem = std::string("--timeout: ") + e.what();
        }
        if (any_problem()) return 1;
        world = std::move(*with_timeout);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        p.settings->die = [] { std::raise(SIGKILL); };
        ends_alone = true;
    }
    zero3_gpt::pin_blas_to_one_thread();
    const auto results =
        p.settings->device == zero3_gpt::device_kind::cuda
            ? zero3_gpt::train_on_cuda_mpi(*p.settings, *p.work, world, *p.nodes)
            : zero3_gpt::train_on_host(*p.settings, *p.work,
                                       zeropp::any_transport<zeropp::host_queue>(std::move(world)), *p.nodes);
    if (!results.empty()) zero3_gpt::report(*p.settings, *p.work, *p.nodes, results);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    int exit_code = 1;
    bool ends_alone = false;
    try {
        exit_code = run(argc, argv, ends_alone);
    } catch (const std::exception& e) {
        // The other ranks may wait for this one, so this ends them too.
        std::cerr << "zero3_gpt: " << e.what() << std::endl;
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (ends_alone) {
        std::cout.flush();
        std::_Exit(exit_code);
    }
    MPI_Finalize();
    return exit_code;
}
