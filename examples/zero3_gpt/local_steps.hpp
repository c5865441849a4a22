#pragma once

#include "deepspeed_config.hpp"
#include "device.hpp"
#include "formats.hpp"

#include <zeropp/local_steps.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace zero3_gpt {

/// Ranks of one island, which is a world of consecutive ranks, and the ranks with equal shards in all islands.
struct island_ranks {
    std::vector<int> island;
    std::vector<int> counterparts;
    zeropp::three_level nodes;  // of the island

    /// For `rank` of the ranks of `all`. Throws zeropp::precondition_error unless islands have equal numbers of ranks
    /// and, with several sites, are whole parts of sites or whole sites.
    island_ranks(const zeropp::three_level& all, int islands, int rank) {
        if (islands < 1 || all.size() % islands != 0) {
            throw zeropp::precondition_error("local_steps.islands",
                                             "a divisor of the " + std::to_string(all.size()) + " ranks",
                                             std::to_string(islands));
        }
        const zeropp::two_level of_islands(islands, all.size() / islands);
        island = zeropp::peer_ranks(of_islands, 0, rank);
        counterparts = zeropp::peer_ranks(of_islands, 1, rank);
        if (const int sites = all.extent(2); islands % sites != 0 && sites % islands != 0) {
            throw zeropp::precondition_error("local_steps.islands",
                                             "a divisor or a multiple of the " + std::to_string(sites) + " sites",
                                             std::to_string(islands));
        }
        nodes = all.shrink(island);
    }
};

/// The library's options for a configuration.
inline zeropp::outer_options outer_options_of(const local_settings& local) {
    return {.every = local.every,
            .fragments = local.fragments,
            .delay = local.delay,
            .learning_rate = static_cast<float>(local.learning_rate),
            .momentum = static_cast<float>(local.momentum),
            .alpha = static_cast<float>(local.alpha)};
}

/// Exchanges the progress of islands on a queue of its own. Each unit is a tensor list with an outer optimizer; unit u
/// belongs to fragment u % fragments. Error feedback makes up for the formats.
template <class Device, class Transport, class Formats>
class island_exchange {
public:
    using space = typename Device::space;
    using list = zeropp::tensor_list<float, space>;

    /// Collective over `counterparts`, one rank of each island.
    island_exchange(const Device& device, const local_settings& local, Transport counterparts)
        : device_(device), options_(outer_options_of(local)), format_(Formats::exchanges::parse(local.quantizer)),
          comm_(zeropp::two_level(counterparts.size(), 1), std::move(counterparts)), queue_(device.make_queue()) {}

    /// Adds the next unit's weights, this rank's shards. Call after its initial weights are enqueued on the device.
    void add(const list& weights) {
        units_.emplace_back(comm_.topology(), weights);
        unit& u = units_.back();
        std::visit(
            [&]<class Q>(const Q& q) {
                using feedback = feedback_of<Q>;
                u.residual_storage =
                    zeropp::workspace<space>(feedback::storage_bytes(comm_.topology(), u.outer.differences()));
                u.residuals.emplace(std::in_place_type<feedback>, comm_.topology(), u.outer.differences(),
                                    u.residual_storage.view());
                const std::size_t bytes =
                    zeropp::outer_step_workspace_bytes(comm_.topology(), zeropp::hops{q, q, q}, u.outer, options_);
                if (bytes > scratch_.view().size()) scratch_ = zeropp::workspace<space>(bytes);
            },
            format_);
        queue_.exec().wait(device_.record());
        u.outer.start(queue_.exec(), weights);
        last_ = queue_.exec().record();
    }

    /// Before an inner step changes weights: waits until begun exchanges have read them.
    void before_step() const { device_.wait(last_); }

    /// After inner step `step`, counted from 1: uses and begins the exchanges of this step. `weights(u)` is the list of
    /// unit u.
    template <class Weights>
    void after_step(std::int64_t step, const Weights& weights) {
        queue_.exec().wait(device_.record());
        bool applied = false;
        const auto for_each_unit = [&](bool begins) {
            for (std::size_t i = 0; i != units_.size(); ++i) {
                const int fragment = static_cast<int>(i) % options_.fragments;
                unit& u = units_[i];
                if (begins && options_.begins(fragment, step)) begin(u, weights(i));
                if (!begins && u.begun && options_.applies(fragment, step)) {
                    // A failed exchange is not pending any more: the queue throws its error.
                    if (!u.outer.pending()) queue_.exec().wait();
                    u.begun = false;
                    u.outer.apply(queue_.exec(), weights(i), options_);
                    applied = true;
                }
            }
        };
        for_each_unit(false);
        for_each_unit(true);
        if (options_.delay == 0) for_each_unit(false);
        // Weights are read or written by the next gather, and by the inner step after it.
        if (applied) device_.wait(queue_.exec().record());
    }

    /// Bytes of memory for exchanges on this rank.
    std::size_t memory_bytes() const {
        std::size_t bytes = scratch_.view().size();
        for (const unit& u : units_) bytes += u.storage.view().size() + u.residual_storage.view().size();
        return bytes;
    }

private:
    template <class Q>
    using feedback_of = zeropp::error_feedback<zeropp::hops<Q, Q, Q>, typename Formats::residuals, space>;

    struct unit {
        zeropp::workspace<space> storage;
        zeropp::outer_optimizer<space> outer;
        zeropp::workspace<space> residual_storage{0};
        bool begun = false;  // an exchange, which waits for its application
        std::optional<typename variant_over<typename Formats::exchanges::variant, feedback_of>::type> residuals;

        unit(const zeropp::two_level& counterparts, const list& weights)
            : storage(zeropp::outer_optimizer<space>::storage_bytes(weights)),
              outer(counterparts, weights, storage.view()) {}
    };

    void begin(unit& u, const list& weights) {
        std::visit(
            [&]<class Q>(const Q& q) {
                last_ = zeropp::outer_begin(
                    queue_.exec(), comm_,
                    zeropp::with_error_feedback(zeropp::hops{q, q, q}, std::get<feedback_of<Q>>(*u.residuals)), weights,
                    u.outer, options_, scratch_.view());
            },
            format_);
        u.begun = true;
    }

    const Device& device_;
    zeropp::outer_options options_;
    typename Formats::exchanges::variant format_;
    zeropp::communicator<zeropp::two_level, Transport> comm_;
    std::deque<unit> units_;
    zeropp::workspace<space> scratch_{0};
    typename Device::execution::event last_;  // weights have been read by all exchanges that have begun
    // Last, so that its destructor waits for the work before its memory is freed.
    typename Device::queue queue_;
};

}  // namespace zero3_gpt
