#pragma once

#include <zeropp/core/config.hpp>
#include <zeropp/elastic.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

namespace zero3_gpt {

namespace step {

/// to <- from.
struct copy {
    const float* from;
    float* to;

    ZEROPP_HOST_DEVICE void operator()(std::int64_t i) const { to[i] = from[i]; }
};

}  // namespace step

template <class Device, class Transport, class Formats>
class zero3_engine;

/// Gives the survivors' engine the state of their engines before the failure.
template <class Device, class Transport, class Formats>
class engine_recovery {
public:
    using engine = zero3_engine<Device, Transport, Formats>;

    /// `from` is the engine of ranks `survivors` among others.
    engine_recovery(engine& to, engine& from, const std::vector<int>& survivors)
        : to_(to), from_(from), survivors_(survivors) {}

    /// Collective over the survivors; the constructor of zero3_engine says more.
    void run() {
        // A survivor that has missed the norm has reduced its gradient, or no other would have the norm.
        const auto version = static_cast<double>(from_.weights_version_);
        const auto states =
            to_.rank_values_.all(to_.device_, to_.gather_queue_, to_.world_,
                                 std::array{version, from_.last_step_.learning_rate, from_.last_step_.norm});
        const auto& [newest, rate, norm_then] = *std::ranges::max_element(states);
        if (version < newest) from_.apply({rate, norm_then});
        to_.weights_version_ = from_.weights_version_;
        to_.last_step_ = from_.last_step_;
        to_.traffic_ = from_.traffic_;
        exec().wait(to_.device_.record());
        std::size_t mirrored = 0;
        for (std::size_t u = 0; u != to_.units_.size(); ++u) {
            unit& to = to_.units_[u];
            unit& from = from_.units_[u];
            to.optimizer.resume(from.optimizer.steps());
            if (!to_.replicated_) recover_weights(to, from);
            take_over(to, from, from.shard.view(), to.shard.view());
            if (to_.average_decay_ > 0) take_over(to, from, from.average.view(), to.average.view());
            for (const std::size_t m : {0u, 1u}) {
                take_over(to, from, from.optimizer.moments()[m], to.optimizer.moments()[m]);
            }
            if (from_.mirrors_ && recover_moments(u, to, from)) ++mirrored;
        }
        if (to_.replicated_) return;
        to_.lost_moments_ = "zeros, since no survivor has copies";
        if (mirrored == to_.units_.size()) to_.lost_moments_ = "copies on partner nodes";
        if (mirrored != to_.units_.size() && mirrored != 0) {
            to_.lost_moments_ = "in part copies on partner nodes, and zeros elsewhere";
        }
    }

private:
    using unit = typename engine::unit_state;
    using list = typename engine::list;
    using space = typename engine::space;

    decltype(auto) exec() const { return to_.gather_queue_.exec(); }

    /// to <- from, on the device.
    void copy(const zeropp::view<const float, space>& from, const zeropp::view<float, space>& to) const {
        to_.device_.for_each(static_cast<std::int64_t>(to.size()), step::copy{from.data(), to.data()});
    }

    /// Moves numbers of the survivors' shards of a unit to their places in the new shards.
    void take_over(const unit& to, const unit& from, const zeropp::view<float, space>& in,
                   const zeropp::view<float, space>& out) {
        if (to_.replicated_) return copy(in, out);
        zeropp::redistribute_shards(
            exec(), to_.weights_comm_, zeropp::survivors_of{from_.weights_comm_.topology(), survivors_},
            from.full_gradient, engine::like(from.own_weights, in), engine::like(to.own_weights, out));
    }

    /// Recovers the weights of lost shards from the copies that survivors hold.
    void recover_weights(unit& to, const unit& from) {
        const zeropp::survivors_of groups{from_.secondary_comm_.topology(), survivors_};
        const auto from_copies = [&](const auto& secondary) {
            for (const list* weights : {&to.own_weights, to.own_average ? &*to.own_average : nullptr}) {
                if (weights == nullptr) continue;
                zeropp::recover_weights(exec(), to_.weights_comm_, groups, secondary, from.full_gradient, *weights,
                                        {.lost_shards_only = true});
            }
        };
        if (!from.secondary.empty()) return std::visit(from_copies, from.secondary.front());
        if (!from.node_replica.empty()) return std::visit(from_copies, from.node_replica.front());
        throw zeropp::error("zero3_gpt: expected zero_hpz_partition_size above 1, to go on without a rank: no other "
                            "rank holds its weights");
    }

    /// Recovers both moments of lost shards from mirrors, if survivors have both: one alone would make wrong steps.
    bool recover_moments(std::size_t number, unit& to, const unit& from) {
        const std::size_t size = to.shard.size();
        for (const std::size_t m : {0u, 1u}) {
            const auto tried = to_.full_[m].view().subview(0, size);
            copy(to.optimizer.moments()[m], tried);
            exec().wait(to_.device_.record());
            if (!from_.mirrors_->recover(number, m, exec(), to_.weights_comm_, survivors_, from.full_gradient,
                                         engine::like(to.own_weights, tried))) {
                return false;
            }
        }
        for (const std::size_t m : {0u, 1u}) copy(to_.full_[m].view().subview(0, size), to.optimizer.moments()[m]);
        return true;
    }

    engine& to_;
    engine& from_;
    const std::vector<int>& survivors_;
};

}  // namespace zero3_gpt
