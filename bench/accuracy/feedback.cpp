#include "accuracy/sums.hpp"

#include "support/data.hpp"

#include <zeropp/zeropp.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>

namespace zeropp_bench {

namespace {

constexpr int ranks = 4;

/// Gradients of all ranks and steps.
class training {
public:
    training(distribution d, std::size_t elements) {
        for (std::uint64_t r = 0; r != ranks; ++r) same_.push_back(values_of(d, 200 + r, elements));
        noise_ = fresh_noise * (d == distribution::student_t3 ? std::sqrt(3.0f) : 1.0f);
    }

    std::size_t elements() const { return same_.front().size(); }

    float at(int rank, int step, std::size_t index) const {
        const auto seed = static_cast<std::uint64_t>(step * ranks + rank);
        return same_[static_cast<std::size_t>(rank)][index] + noise_ * value_at(seed, index);
    }

private:
    std::vector<std::vector<float>> same_;
    float noise_;
};

/// Sums of squares: of the exact sum, and of its error.
struct energies {
    double signal = 0;
    double noise = 0;
};

double relative_error(std::span<const energies> of_ranks) {
    energies all;
    for (const energies& e : of_ranks) {
        all.signal += e.signal;
        all.noise += e.noise;
    }
    return std::sqrt(all.noise / all.signal);
}

/// Runs all steps. make_reduce(topology, elements) returns a rank's reduce(comm, step, full, shard).
template <class MakeReduce>
feedback_accuracy train(const std::string& method, const training& given, int steps, MakeReduce make_reduce) {
    feedback_accuracy found;
    found.method = method;
    // Separate for each rank, so that the order of additions is fixed.
    std::array<energies, ranks> first;
    std::array<energies, ranks> last;
    zeropp::run_on_threads(ranks, [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const zeropp::partition part(given.elements(), ranks);
        const std::size_t offset = part.offset(comm.rank());
        std::vector<float> full(given.elements());
        std::vector<float> shard(part.size(comm.rank()));
        std::vector<double> exact(shard.size());
        std::vector<double> results(shard.size());
        auto reduce = make_reduce(comm.topology(), given.elements());
        for (int step = 0; step != steps; ++step) {
            for (std::size_t i = 0; i != full.size(); ++i) full[i] = given.at(comm.rank(), step, i);
            reduce(comm, step, full, shard);
            energies so_far;
            for (std::size_t i = 0; i != shard.size(); ++i) {
                for (int r = 0; r != ranks; ++r) exact[i] += static_cast<double>(given.at(r, step, offset + i));
                results[i] += static_cast<double>(shard[i]);
                so_far.signal += exact[i] * exact[i];
                so_far.noise += (results[i] - exact[i]) * (results[i] - exact[i]);
            }
            if (step == 0) first[static_cast<std::size_t>(comm.rank())] = so_far;
            last[static_cast<std::size_t>(comm.rank())] = so_far;
        }
    });
    found.first_step = relative_error(first);
    found.all_steps = relative_error(last);
    return found;
}

template <zeropp::quantizer Q, class Storage>
feedback_accuracy train_with_feedback(const std::string& residuals, const training& given, int steps) {
    using memory = zeropp::error_feedback<zeropp::hops<Q, Q>, Storage, zeropp::host_space>;
    const zeropp::two_level nodes(2, 2);
    auto found = train("feedback, residuals in " + residuals, given, steps, [](const auto& topology, std::size_t n) {
        auto scratch = std::make_shared<zeropp::workspace<zeropp::host_space>>(
            zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(topology, zeropp::hops{Q{}, Q{}}, n));
        auto storage = std::make_shared<zeropp::workspace<zeropp::host_space>>(memory::storage_bytes(topology, n));
        return [scratch, storage, held = memory(topology, n, storage->view())](auto& comm, int, const auto& full,
                                                                               auto& shard) mutable {
            zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm,
                                                          zeropp::with_error_feedback(zeropp::hops{Q{}, Q{}}, held),
                                                          full, shard, zeropp::reduce_options{}, scratch->view());
        };
    });
    found.bytes_per_element =
        static_cast<double>(memory::storage_bytes(nodes, given.elements())) / static_cast<double>(given.elements());
    return found;
}

/// Runs all steps without error feedback, with quantizer(rank, step) on both hops.
template <class QuantizerOf>
feedback_accuracy train_without(const std::string& method, const training& given, int steps, QuantizerOf quantizer) {
    return train(method, given, steps, [&](const auto&, std::size_t) {
        return [&](auto& comm, int step, const auto& full, auto& shard) {
            const auto q = quantizer(comm.rank(), step);
            zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{q, q}, full, shard);
        };
    });
}

template <zeropp::quantizer Q>
void add_methods(const training& given, int steps, std::vector<feedback_accuracy>& all) {
    const std::size_t before = all.size();
    all.push_back(train_without("nearest", given, steps, [](int, int) { return Q{}; }));
    all.push_back(train_without("stochastic", given, steps, [](int rank, int step) {
        return zeropp::stochastic<Q>(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(step));
    }));
    all.push_back(train_with_feedback<Q, zeropp::residuals_in_fp32>("fp32", given, steps));
    all.push_back(train_with_feedback<Q, zeropp::residuals_in_bf16>("bf16", given, steps));
    all.push_back(train_with_feedback<Q, zeropp::residuals_in_int8>("int8", given, steps));
    for (std::size_t i = before; i != all.size(); ++i) all[i].format = zeropp::short_text(Q{}.name()).str();
}

}  // namespace

std::vector<feedback_accuracy> measure_feedback(distribution d, int steps, std::size_t elements) {
    const training given(d, elements);
    std::vector<feedback_accuracy> all;
    add_methods<zeropp::block_integer<4, 128>>(given, steps, all);
    add_methods<zeropp::hadamard<zeropp::block_integer<4, 128>>>(given, steps, all);
    return all;
}

}  // namespace zeropp_bench
