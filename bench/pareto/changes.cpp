/// \file
/// How many weights a training step changes once they are rounded to bfloat16, and what exact_update sends of them: the
/// command line of zero3_gpt, and --json.

#include "support/json_file.hpp"

#include <host_pass.hpp>
#include <trainer.hpp>

#include <nlohmann/json.hpp>
#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace zero3_gpt;

/// Replicas that follow one rank's weights, rounded, and what that takes. All tensors count as one.
class follower {
public:
    follower(const zeropp::thread_transport& transport, const zeropp::two_level& nodes, std::size_t own)
        : comm_(nodes, zeropp::counting(transport, nodes)), weights_(own), before_(own),
          storage_(replica_type::storage_bytes(nodes, own * static_cast<std::size_t>(nodes.size()))),
          replica_(nodes, transport.rank(), own * static_cast<std::size_t>(nodes.size()), storage_.view()) {}

    /// The next version; `masters` are copied, and the rest up to what every rank has is zero.
    template <class Engine>
    void follow(const Engine& engine, int units) {
        before_ = weights_;
        std::size_t i = 0;
        for (int u = 0; u != units; ++u) {
            const auto own = engine.masters(u);
            for (std::size_t k = 0; k != own.size(); ++k) weights_[i++] = zeropp::bfloat16(own.data()[k]);
        }
        const std::uint64_t sent = comm_.world().total().bytes_across;
        zeropp::exact_update(zeropp::host{}, comm_, weights_, replica_, ++version_);
        if (version_ == 1) return;
        bytes += comm_.world().total().bytes_across - sent;
        for (std::size_t k = 0; k != weights_.size(); ++k) changed += weights_[k].bits != before_[k].bits ? 1u : 0u;
    }

    std::uint64_t bytes = 0;
    std::uint64_t changed = 0;

private:
    using replica_type = zeropp::secondary_replica<zeropp::lossless<zeropp::bfloat16>, zeropp::host_space>;

    zeropp::communicator<zeropp::two_level, zeropp::counting<zeropp::thread_transport, zeropp::two_level>> comm_;
    std::vector<zeropp::bfloat16> weights_, before_;
    zeropp::workspace<zeropp::host_space> storage_;
    replica_type replica_;
    std::uint64_t version_ = 0;
};

/// Adds what a run comes to, over its steps.
void measure(const settings& s, const run_settings& run, const workload& work, const zeropp::two_level& nodes,
             nlohmann::ordered_json& results) {
    zeropp::run_on_threads(nodes.size(), [&](zeropp::thread_transport ranks) {
        const host_device device;
        const int size = nodes.size();
        // What the rank with the most has.
        std::size_t own = 0, elements = 0;
        for (int u = 0; u != work.network.units(); ++u) {
            for (const unit_tensor& t : work.network.tensors(u)) {
                own += zeropp::partition(t.size, size).slice_size();
                elements += t.size;
            }
        }
        follower f(ranks, nodes, own);
        int steps = 0;
        train<wire_formats>(device, s, run, work, ranks, nodes, [&](auto& engine, int step, double) {
            f.follow(engine, work.network.units());
            steps = step;
            if (step + 1 != s.steps) return;
            const double changed = engine.sum_over_ranks(static_cast<double>(f.changed));
            const double sent = engine.sum_over_ranks(static_cast<double>(f.bytes));
            if (ranks.rank() != 0) return;
            const double density = changed / steps / static_cast<double>(elements);
            // Whole weights, in 16 bits, to every other node.
            const double whole = 2.0 * static_cast<double>(elements) * (nodes.groups() - 1);
            results.push_back(
                {{"name", run.name}, {"changed_percent", 100 * density}, {"reduction", whole / (sent / steps)}});
        });
    });
}

}  // namespace

int main(int argc, char** argv) {
    try {
        int exit_code = 0;
        const auto s = read_settings(argc, argv, true, exit_code);
        if (!s) return exit_code;
        pin_blas_to_one_thread();
        const workload work(model(s->network), text(read_text(s->text_file), s->network.context));
        const auto nodes = zeropp::two_level::of_size(s->ranks, s->ranks_per_node);
        if (s->steps < 2 || nodes.groups() < 2) {
            throw std::invalid_argument("expected at least 2 steps and 2 nodes, given " + std::to_string(s->steps) +
                                        " and " + std::to_string(nodes.groups()));
        }
        nlohmann::ordered_json results = nlohmann::ordered_json::array();
        for (const run_settings& run : s->runs) measure(*s, run, work, nodes, results);
        zeropp_bench::write_json(s->json_file, results);
        return 0;
    } catch (const std::exception& e) {
        std::cerr << "changes: " << e.what() << '\n';
        return 1;
    }
}
