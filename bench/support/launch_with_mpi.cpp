#include "support/bare_messages.hpp"
#include "support/launch.hpp"
#include "support/mpi_native.hpp"

#include <zeropp/mpi.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>

namespace zeropp_bench {

namespace {

using zeropp::detail::require_mpi;

/// A bare exchange with MPI's nonblocking calls.
class mpi_messages {
public:
    mpi_messages(const bare_messages& messages, MPI_Comm world)
        : world_(world), send_memory_(messages.send_bytes()), receive_memory_(messages.receive_bytes()) {
        constexpr std::size_t longest = std::size_t{1} << 30;  // MPI counts in int
        for (const bare_messages::message& m : messages.all()) {
            for (std::size_t done = 0; done < m.bytes; done += longest) {
                pieces_.push_back(
                    {m.to, m.from, m.send_offset + done, m.receive_offset + done, std::min(longest, m.bytes - done)});
            }
        }
        requests_.resize(2 * pieces_.size());
    }

    /// In MPI_Waitall, or by polling as the library's transport does.
    enum class wait { busy, sparing };

    void move(wait how) {
        for (std::size_t i = 0; i != pieces_.size(); ++i) {
            const bare_messages::message& m = pieces_[i];
            const int bytes = static_cast<int>(m.bytes);
            require_mpi(MPI_Irecv(receive_memory_.data() + m.receive_offset, bytes, MPI_BYTE, m.from, 0, world_,
                                  &requests_[2 * i]),
                        "MPI_Irecv");
            require_mpi(
                MPI_Isend(send_memory_.data() + m.send_offset, bytes, MPI_BYTE, m.to, 0, world_, &requests_[2 * i + 1]),
                "MPI_Isend");
        }
        const int count = static_cast<int>(requests_.size());
        if (how == wait::busy) {
            require_mpi(MPI_Waitall(count, requests_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
        } else {
            zeropp::detail::poll_until([&] {
                int done = 0;
                require_mpi(MPI_Testall(count, requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
                return done != 0;
            });
        }
    }

private:
    MPI_Comm world_;
    std::vector<bare_messages::message> pieces_;
    std::vector<std::byte> send_memory_;
    std::vector<std::byte> receive_memory_;
    std::vector<MPI_Request> requests_;
};

any_host_transport duplicate(const zeropp::mpi_transport& transport) {
    return any_host_transport(zeropp::mpi_transport::duplicate(transport.native()));
}

class mpi_rank final : public ranks_on<host_place> {
public:
    mpi_rank(zeropp::mpi_transport transport, const zeropp::two_level& nodes)
        : ranks_on(nodes, duplicate(transport)), transport_(std::move(transport)) {}

    std::string transport_name() const override { return "mpi"; }
    bool speaks_for_process() const override { return true; }
    std::string native_all_gather_name() const override { return "MPI_Allgather"; }
    std::string native_reduce_scatter_name() const override { return "MPI_Reduce_scatter(_block)"; }
    std::string native_all_reduce_name() const override { return "MPI_Allreduce"; }
    std::string native_all_to_all_name() const override { return "MPI_Alltoall"; }

    any_host_transport world() override { return duplicate(transport_); }

    std::shared_ptr<native_collectives> native(std::span<const int> members) override {
        return mpi_native(transport_.split(members));
    }

    std::vector<std::function<void()>> bare_exchanges(const route& hops) override {
        const auto messages = std::make_shared<mpi_messages>(bare_messages(rank(), hops), transport_.native());
        return {[messages] { messages->move(mpi_messages::wait::busy); },
                [messages] { messages->move(mpi_messages::wait::sparing); }};
    }

private:
    zeropp::mpi_transport transport_;
};

constexpr bool with_mpi = true;

/// True if an MPI launcher has started this process.
bool launched() {
    constexpr const char* names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"};
    return std::any_of(std::begin(names), std::end(names), [](const char* name) { return std::getenv(name); });
}

/// A machine's ranks take its GPUs in order. Throws precondition_error on all ranks if one has too few.
int gpu_of_this_rank(const zeropp::mpi_transport& world, const gpu_work& work) {
    const zeropp::two_level machines = zeropp::shared_memory_nodes(world);
    int fewest = work.gpus();
    require_mpi(MPI_Allreduce(MPI_IN_PLACE, &fewest, 1, MPI_INT, MPI_MIN, world.native()), "MPI_Allreduce");
    require_gpus(largest_group_size(machines), fewest);
    return machines.index_of(world.rank());
}

/// Runs `work` on ranks of MPI, which is initialised. Mistakes and exit status are equal on all ranks.
int run_on_mpi(const parsed_options& parsed, const program_facts& program, const rank_work& work) {
    zeropp::mpi_transport world = zeropp::mpi_transport::duplicate(MPI_COMM_WORLD);
    const auto say = [&](const std::string& text, int status) {
        std::FILE* const where = status == 0 ? stdout : stderr;
        if (world.rank() == 0) std::fputs(text.c_str(), where);
        std::fflush(where);
        // Launchers end all ranks as soon as one fails, so first wait until the line is printed.
        MPI_Barrier(world.native());
        return status;
    };
    if (!parsed.wanted) return say(parsed.message, parsed.exit_code);
    const options& o = *parsed.wanted;
    if (o.transport == "threads") {
        return say(mistake(program, "--transport: threads are ranks of one process, to be started without mpirun"), 2);
    }
    const bool on_gpus = o.transport == "nccl" && work.on_gpu;
    if (!o.transport.empty() && o.transport != "mpi" && !on_gpus) {
        return say(unknown_transport(program, o.transport, with_mpi, work), 2);
    }
    std::optional<zeropp::two_level> nodes;
    int gpu = 0;
    try {
        nodes = o.ranks_per_node == 0 ? zeropp::shared_memory_nodes(world) : wanted_nodes(o, world.size());
        require_sites(o, *nodes);
        if (on_gpus) gpu = gpu_of_this_rank(world, *work.on_gpu);
    } catch (const zeropp::precondition_error& e) {
        return say(mistake(program, e.what()), 2);
    }
    if (on_gpus) return work.on_gpu->run(o, {*nodes, duplicate(world), gpu, true});
    mpi_rank context(std::move(world), *nodes);
    return work.on_host(o, context);
}

}  // namespace

int launch(int argc, char** argv, const program_facts& program, const rank_work& work) {
    const parsed_options parsed = parse_options(argc, argv, program);
    const bool wants_mpi = parsed.wanted && parsed.wanted->transport == "mpi";
    if (!launched() && !wants_mpi) return launch_in_this_process(parsed, program, work, with_mpi);

    let_algorithms_be_chosen();
    // Only hops that overlap need MPI_THREAD_MULTIPLE, which slows MPI down.
    const bool threads = program.overlaps || (parsed.wanted && parsed.wanted->chunks != 1);
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    int status = 1;
    try {
        status = run_on_mpi(parsed, program, work);
    } catch (const std::exception& e) {
        // Other ranks may wait for this one: end them too.
        std::fputs(mistake(program, e.what()).c_str(), stderr);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return status;
}

}  // namespace zeropp_bench
