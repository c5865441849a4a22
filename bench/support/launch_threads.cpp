#include "support/launch.hpp"

#include <zeropp/transport/threads.hpp>

#include <cstdio>
#include <numeric>
#include <optional>

namespace zeropp_bench {

namespace {

class thread_rank final : public rank_context {
public:
    thread_rank(zeropp::thread_transport transport, const zeropp::two_level& nodes)
        : rank_context(nodes), transport_(std::move(transport)) {}

    std::string transport_name() const override { return "threads"; }
    bool speaks_for_process() const override { return transport_.rank() == 0; }
    std::string native_all_gather_name() const override { return {}; }
    std::string native_reduce_scatter_name() const override { return {}; }

    any_transport world() override {
        std::vector<int> all(static_cast<std::size_t>(transport_.size()));
        std::iota(all.begin(), all.end(), 0);
        return any_transport(std::make_shared<zeropp::thread_transport>(transport_.split(all)));
    }

    std::shared_ptr<native_collectives> native(std::span<const int>) override { return nullptr; }

    /// Threads have no messages below the transport: its own copies between the ranks' buffers, hop by hop, are the
    /// limit.
    std::vector<std::function<void()>> bare_exchanges(comm_type& comm, const route& hops) override {
        struct buffers {
            std::vector<std::byte> send;
            std::vector<std::byte> receive;
        };
        std::vector<std::shared_ptr<buffers>> memory;
        for (const hop& h : hops) {
            const std::size_t all = h.bytes * static_cast<std::size_t>(h.ranks(comm.topology()));
            const std::size_t sent = h.what == hop::pattern::all_gather ? h.bytes : all;
            memory.push_back(
                std::make_shared<buffers>(buffers{std::vector<std::byte>(sent), std::vector<std::byte>(all)}));
        }
        const auto exchange = [&comm, hops, memory] {
            for (std::size_t i = 0; i != hops.size(); ++i) {
                any_transport& link = hops[i].where == hop::link::inside ? comm.group() : comm.across();
                std::byte* const send = memory[i]->send.data();
                std::byte* const receive = memory[i]->receive.data();
                if (hops[i].what == hop::pattern::all_gather) {
                    link.all_gather(zeropp::host{}, send, receive, hops[i].bytes);
                } else {
                    link.all_to_all(zeropp::host{}, send, receive, hops[i].bytes);
                }
            }
        };
        return {exchange};
    }

private:
    zeropp::thread_transport transport_;
};

}  // namespace

int launch_in_this_process(const parsed_options& parsed, const program_facts& program, const rank_work& work,
                           std::string_view built) {
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
    if (!o.transport.empty() && o.transport != "threads")
        return fail(unknown_transport(program, o.transport, built), 2);
    std::optional<zeropp::two_level> nodes;
    try {
        nodes = wanted_nodes(o, o.ranks);
    } catch (const std::exception& e) {
        return fail(mistake(program, e.what()), 2);
    }
    int status = 0;
    try {
        zeropp::run_on_threads(o.ranks, [&](zeropp::thread_transport transport) {
            const bool first = transport.rank() == 0;
            thread_rank context(std::move(transport), *nodes);
            const int mine = work(o, context);
            if (first) status = mine;
        });
    } catch (const std::exception& e) {
        return fail(mistake(program, e.what()), 1);
    }
    return status;
}

std::string unknown_transport(const program_facts& program, std::string_view given, std::string_view built) {
    return mistake(program,
                   "--transport: this build has " + std::string(built) + ", given \"" + std::string(given) + "\"");
}

}  // namespace zeropp_bench
