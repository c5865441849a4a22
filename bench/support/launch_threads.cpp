#include "support/launch.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/transport/threads.hpp>

#include <cstdio>
#include <numeric>
#include <optional>

namespace zeropp_bench {

namespace {

/// A separate transport over the ranks of `transport`.
any_host_transport duplicate(zeropp::thread_transport& transport) {
    std::vector<int> all(static_cast<std::size_t>(transport.size()));
    std::iota(all.begin(), all.end(), 0);
    return any_host_transport(transport.split(all));
}

class thread_rank final : public ranks_on<host_place> {
public:
    thread_rank(zeropp::thread_transport transport, const zeropp::two_level& nodes)
        : ranks_on(nodes, duplicate(transport)), transport_(std::move(transport)) {}

    std::string transport_name() const override { return "threads"; }
    bool speaks_for_process() const override { return transport_.rank() == 0; }
    std::string native_all_gather_name() const override { return {}; }
    std::string native_reduce_scatter_name() const override { return {}; }
    std::string native_all_reduce_name() const override { return {}; }
    std::string native_all_to_all_name() const override { return {}; }

    any_host_transport world() override { return duplicate(transport_); }

    std::shared_ptr<native_collectives> native(std::span<const int>) override { return nullptr; }

    /// Threads have no messages below the transport. Its copies between the ranks' buffers, hop by hop, are the limit.
    std::vector<std::function<void()>> bare_exchanges(const route& hops) override {
        struct exchange {
            hop of;
            any_host_transport link;
            std::vector<std::byte> send;
            std::vector<std::byte> receive;
        };
        const auto exchanges = std::make_shared<std::vector<exchange>>();
        for (const hop& h : hops) {
            const std::size_t all = h.bytes * h.members.size();
            const std::size_t sent = h.what == hop::pattern::all_gather ? h.bytes : all;
            exchanges->push_back({h, any_host_transport(transport_.split(h.members)), std::vector<std::byte>(sent),
                                  std::vector<std::byte>(all)});
        }
        return {[exchanges] {
            for (exchange& e : *exchanges) {
                if (e.of.what == hop::pattern::all_gather) {
                    e.link.all_gather(zeropp::host{}, e.send.data(), e.receive.data(), e.of.bytes);
                } else {
                    e.link.all_to_all(zeropp::host{}, e.send.data(), e.receive.data(), e.of.bytes);
                }
            }
        }};
    }

private:
    zeropp::thread_transport transport_;
};

}  // namespace

int launch_in_this_process(const parsed_options& parsed, const program_facts& program, const rank_work& work,
                           bool with_mpi) {
    const auto fail = [&](const std::string& line, int status) {
        std::fputs(line.c_str(), stderr);
        return status;
    };
    if (!parsed.wanted) {
        if (parsed.exit_code != 0) return fail(parsed.message, parsed.exit_code);
        std::fputs(parsed.message.c_str(), stdout);
        return 0;
    }
    const options& o = *parsed.wanted;
    const bool on_gpus = o.transport == "nccl" && work.on_gpu;
    if (!o.transport.empty() && o.transport != "threads" && !on_gpus) {
        return fail(unknown_transport(program, o.transport, with_mpi, work), 2);
    }
    std::optional<zeropp::two_level> nodes;
    try {
        nodes = wanted_nodes(o, o.ranks);
        require_sites(o, *nodes);
        if (on_gpus) require_gpus(o.ranks, work.on_gpu->gpus());
    } catch (const std::exception& e) {
        return fail(mistake(program, e.what()), 2);
    }
    int status = 0;
    try {
        zeropp::run_on_threads(o.ranks, [&](zeropp::thread_transport transport) {
            const int rank = transport.rank();
            int mine = 0;
            if (on_gpus) {
                mine = work.on_gpu->run(o, {*nodes, duplicate(transport), rank, false});
            } else {
                thread_rank context(std::move(transport), *nodes);
                mine = work.on_host(o, context);
            }
            if (rank == 0) status = mine;
        });
    } catch (const std::exception& e) {
        return fail(mistake(program, e.what()), 1);
    }
    return status;
}

void require_sites(const options& o, const zeropp::two_level& nodes) {
    if (nodes.groups() % o.sites != 0) {
        throw zeropp::precondition_error("--sites", "a divisor of the " + std::to_string(nodes.groups()) + " nodes",
                                         std::to_string(o.sites));
    }
}

void require_gpus(int ranks, int gpus) {
    if (gpus < ranks) {
        throw zeropp::precondition_error("--transport nccl",
                                         "a GPU for each of the " + std::to_string(ranks) + " ranks on a machine",
                                         std::to_string(gpus));
    }
}

std::string unknown_transport(const program_facts& program, std::string_view given, bool with_mpi,
                              const rank_work& work) {
    const std::string built = std::string("threads") + (with_mpi && work.on_gpu ? ", mpi and nccl"
                                                        : with_mpi              ? " and mpi"
                                                        : work.on_gpu           ? " and nccl"
                                                                                : "");
    return mistake(program, "--transport: this build has " + built + ", given \"" + std::string(given) + "\"");
}

}  // namespace zeropp_bench
