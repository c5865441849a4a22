#pragma once

#include "adamw.hpp"
#include "deepspeed_config.hpp"
#include "device.hpp"
#include "engine_recovery.hpp"
#include "formats.hpp"
#include "local_steps.hpp"
#include "model.hpp"
#include "moment_mirrors.hpp"
#include "rank_values.hpp"
#include "sites.hpp"

#include <zeropp/core/config.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace zero3_gpt {

/// Bytes that this rank has sent, by purpose.
struct phase_traffic {
    zeropp::volume forward_gather;
    zeropp::volume backward_gather;
    zeropp::volume reduce;
    zeropp::volume exchange;  // between islands
    zeropp::volume mirror;    // of the optimizer's moments

    zeropp::volume total() const { return forward_gather + backward_gather + reduce + exchange + mirror; }
};

namespace step {

/// Sums the squares of each stretch of `stretch` numbers, in order.
struct sum_squares {
    static constexpr std::int64_t stretch = 256;

    std::int64_t count;
    const float* x;
    double* sums;

    ZEROPP_HOST_DEVICE void operator()(std::int64_t i) const {
        const std::int64_t end = count - i * stretch < stretch ? count : (i + 1) * stretch;
        double sum = 0;
        for (std::int64_t j = i * stretch; j < end; ++j) sum += static_cast<double>(x[j]) * static_cast<double>(x[j]);
        sums[i] = sum;
    }
};

/// average <- average + part * (x - average).
struct move_average {
    float part;
    const float* x;
    float* average;

    ZEROPP_HOST_DEVICE void operator()(std::int64_t i) const { average[i] += part * (x[i] - average[i]); }
};

}  // namespace step

/// Weights that a pass over the units uses.
enum class weights_kind {
    quantized,  ///< as the configuration sends them
    masters,    ///< the optimizer's, exactly
    average,    ///< the exponential moving average of the optimizer's, exactly
};

/// ZeRO stage 3: every rank keeps its shards of each unit's weights (float), gradient and AdamW state. Whole weights
/// exist only while a unit computes. Bytes move between ranks through the library:
///
///   forward   quantized_all_gather of the unit's weights; with hpZ, `store` of the secondary partition
///   backward  secondary_partition_gather with hpZ, otherwise quantized_all_gather again
///   gradient  hierarchical_quantized_reduce_scatter to the mean over ranks, with error feedback if configured
///
/// A unit's tensors move in one list: in one message, but each is divided and quantized by itself.
///
/// Stage 0 is plain data parallelism: every rank keeps whole weights and AdamW state, nothing is gathered, and
/// gradients go through quantized_all_reduce.
///
/// With weight differences, every node keeps the whole weights, divided over its ranks: quantized_update in the
/// forward pass, secondary_partition_gather in the backward pass. Exact differences make every rank wait in an update,
/// until ranks know the sizes of its messages.
///
/// Gradients of embeddings and head may have a format of their own, with more bits than the blocks'.
///
/// With local steps, all this happens in islands of ranks, and an island_exchange joins them every few steps.
///
/// One queue of the device gathers the next unit's weights while a unit computes, another reduces gradients. Arrays are
/// on the device; only losses and norms return to the host. `Formats` lists the formats for the wire.
template <class Device, class Transport, class Formats = wire_formats>
class zero3_engine {
public:
    using space = typename Device::space;
    using transport_type = zeropp::counting<Transport, zeropp::three_level>;

    /// Collective. `world` counts bytes by the real nodes; `nodes` is the topology of the collectives.
    zero3_engine(const Device& device, const model& network, const deepspeed_config& config, std::uint64_t seed,
                 transport_type& world, const zeropp::three_level& nodes)
        : zero3_engine(device, network, config, seed, world,
                       island_ranks(nodes, config.zeropp.islands(), world.rank())) {
        if (config.zeropp.optimizer_mirror && !mirrors_) {
            throw zeropp::error("zero3_gpt: expected at least 2 nodes for optimizer_mirror, given 1");
        }
    }

    /// Collective over the survivors of a failure. Continues `before`, the engine of ranks `survivors` among others.
    /// Lost shards come from secondary partitions or replicas, and their moments begin at zero. First lets `before`
    /// take the optimizer step that other survivors have taken. Requires `before.stop()`. Throws zeropp::error on every
    /// survivor if a configuration keeps no copies, or survivors hold none.
    zero3_engine(const Device& device, const model& network, const deepspeed_config& config, std::uint64_t seed,
                 transport_type& world, zero3_engine& before, const std::vector<int>& survivors)
        : zero3_engine(device, network, config, seed, world,
                       island_ranks(before.whole().weights_comm_.topology().shrink(survivors), 1, world.rank()),
                       before.whole().secondary_comm_.topology().shrink(survivors)) {
        engine_recovery<Device, Transport, Formats>(*this, before, survivors).run();
    }

    /// For an island among the ranks of `world`.
    zero3_engine(const Device& device, const model& network, const deepspeed_config& config, std::uint64_t seed,
                 transport_type& world, const island_ranks& ranks)
        : zero3_engine(device, network, config, seed, world, ranks,
                       in_groups(config.zero.hpz_partition_size, ranks.nodes)) {}

    /// With secondary partitions in groups of their own.
    zero3_engine(const Device& device, const model& network, const deepspeed_config& config, std::uint64_t seed,
                 transport_type& world, const island_ranks& ranks, const zeropp::three_level& groups)
        : device_(device), network_(network), replicated_(config.zero.stage == 0), clipping_(config.gradient_clipping),
          average_decay_(config.zeropp.weight_average),
          mean_{.operation = zeropp::reduction::mean, .chunks = config.zeropp.gradient_chunks},
          overlap_(config.zero.overlap_comm), world_(world), island_(world.split(ranks.island)),
          weights_comm_(ranks.nodes, world.split(ranks.island)), secondary_comm_(groups, world.split(ranks.island)),
          gradient_comm_(ranks.nodes, world.split(ranks.island)), rank_values_(world.size()),
          gather_queue_(device.make_queue()), reduce_queue_(device.make_queue()) {
        if (config.zeropp.local_steps) {
            exchange_.emplace(device, *config.zeropp.local_steps, world.split(ranks.counterparts));
        }
        if (config.zeropp.optimizer_mirror && ranks.nodes.groups() > 1) {
            mirrors_.emplace(device, *config.zeropp.optimizer_mirror, world.split(ranks.island), ranks.nodes);
        }
        hpz_ = config.zero.hpz_partition_size > 1;
        differences_ = config.zeropp.weight_differences;
        if (differences_) {
            difference_formats_ = difference_formats_of(config);
        } else {
            secondary_format_ = Formats::weights::parse(config.zeropp.secondary_quantizer);
        }
        feedback_ = config.zero.quantized_gradients && config.zeropp.gradient_error_feedback;
        std::size_t largest_unit = 0;
        for (int u = 0; u != network.units(); ++u) largest_unit = std::max(largest_unit, network.unit_parameters(u));
        for (auto& buffer : full_) buffer = floats(largest_unit);
        for (auto& buffer : gradient_) buffer = floats(largest_unit);
        for (int u = 0; u != network.units(); ++u) add_unit(u, config, seed);
        gather_scratch_ = zeropp::workspace<space>(largest_gather_);
        reduce_scratch_ = zeropp::workspace<space>(largest_reduce_);
        square_sums_ = array<double, space>(stretches_);
    }

    /// Formats of weight differences, and of the weights that nodes keep.
    struct difference_formats {
        typename differences_of<Formats>::variant differences;
        typename Formats::replicas::variant replicas;
    };
    /// The formats that a configuration names. Throws precondition_error for unknown names, and unless the device has
    /// a codec for these differences of these weights.
    static difference_formats difference_formats_of(const deepspeed_config& config) {
        const difference_formats formats{differences_of<Formats>::parse(weights_named_by(config)),
                                         Formats::replicas::parse(config.zeropp.secondary_quantizer)};
        std::visit(
            []<class Q, class Kept>(const Q& q, const Kept& kept) {
                if constexpr (!has_codec<Q, Kept>) {
                    throw zeropp::precondition_error("weight_quantizer",
                                                     "differences that this device can make of weights kept in " +
                                                         zeropp::short_text(kept.name()).str(),
                                                     zeropp::short_text(q.name()).str());
                }
            },
            formats.differences, formats.replicas);
        return formats;
    }

    /// Later passes use these weights. In stage 0 all ranks have the masters. `average` needs the configuration's
    /// weight_average.
    void use(weights_kind kind) { kind_ = kind; }

    /// Starts a pass over the units, forward or forward and backward. Gathers the first unit.
    void begin(bool with_backward) {
        visits_.clear();
        for (int u = 0; u != network_.units(); ++u) visits_.push_back({u, false});
        for (int u = network_.units() - 1; with_backward && u >= 0; --u) visits_.push_back({u, true});
        next_visit_ = 0;
        if (with_backward) ++version_;
        start_gather(0);
    }

    /// Whole weights of the pass's next unit, valid until the next call. Starts to gather the unit after it.
    zeropp::view<const float, space> next_weights() {
        const std::size_t v = next_visit_++;
        device_.wait(ready_[v % 2]);
        if (v + 1 != visits_.size()) start_gather(v + 1);
        const unit_state& u = units_[static_cast<std::size_t>(visits_[v].unit)];
        if (!replicated_) return full_[v % 2].view().subview(0, u.parameters);
        return (kind_ == weights_kind::average ? u.average : u.shard).view();
    }

    /// Buffer for the unit's gradient. The previous unit must have been reduced.
    zeropp::view<float, space> gradient(int unit) {
        device_.wait(reduced_[parity(unit)]);
        return gradient_[parity(unit)].view().subview(0, units_[static_cast<std::size_t>(unit)].parameters);
    }

    /// Reduces the gradient in the unit's buffer; this rank keeps its shards of the mean.
    void reduce(int unit) {
        unit_state& u = units_[static_cast<std::size_t>(unit)];
        reduce_queue_.exec().wait(device_.record());
        count(traffic_.reduce, [&] {
            std::visit(
                [&]<class Hops>(const Hops& hop) {
                    if (replicated_) {
                        zeropp::quantized_all_reduce(reduce_queue_.exec(), gradient_comm_, with_all_gather(hop),
                                                     u.full_gradient, u.own_gradient, all_mean(),
                                                     reduce_scratch_.view());
                    } else if (feedback_) {
                        zeropp::hierarchical_quantized_reduce_scatter(
                            reduce_queue_.exec(), gradient_comm_,
                            zeropp::with_error_feedback(hop, std::get<feedback_of<Hops>>(u.feedback.front())),
                            u.full_gradient, u.own_gradient, mean_, reduce_scratch_.view());
                    } else {
                        zeropp::hierarchical_quantized_reduce_scatter(reduce_queue_.exec(), gradient_comm_, hop,
                                                                      u.full_gradient, u.own_gradient, mean_,
                                                                      reduce_scratch_.view());
                    }
                },
                u.gradient_format);
        });
        reduced_[parity(unit)] = reduce_queue_.exec().record();
        if (!overlap_) reduce_queue_.exec().wait();
    }

    /// Clips by the global norm and takes an AdamW step on this rank's shards. Returns the norm before clipping. Throws
    /// zeropp::error on every rank if the gradient is not finite.
    double step(double learning_rate) {
        const double norm = gradient_norm();
        apply({learning_rate, norm});
        mirror_moments();
        return norm;
    }

    /// Global norm of the gradient, after its reduction. A rank that returns knows that all ranks have reduced theirs,
    /// also in stage 0, where every rank has the whole gradient. Throws as `step`.
    double gradient_norm() {
        device_.wait(reduce_queue_.exec().record());
        double* sums = square_sums_.data();
        for (const unit_state& u : units_) {
            const auto size = static_cast<std::int64_t>(u.gradient_shard.size());
            device_.for_each(stretches(size), step::sum_squares{size, u.gradient_shard.data(), sums});
            sums += stretches(size);
        }
        std::vector<double> stretch_squares(square_sums_.size());
        device_.download(std::span(stretch_squares), square_sums_.data());
        double squares = 0;
        for (const double s : stretch_squares) squares += s;
        const double norm =
            std::sqrt(replicated_ ? rank_values_.all(device_, gather_queue_, island_, std::array{squares}).front()[0]
                                  : rank_values_.sum(device_, gather_queue_, island_, squares));
        if (!std::isfinite(norm)) throw zeropp::error("zero3_gpt: the gradient is not finite");
        return norm;
    }

    /// Learning rate, and norm of the gradient, of an optimizer step.
    struct step_settings {
        double learning_rate;
        double norm;
    };

    /// Takes an AdamW step with the reduced gradient. Exchanges nothing, except between islands.
    void apply(const step_settings& how) {
        const double scale = clipping_ > 0 ? std::min(1.0, clipping_ / how.norm) : 1.0;
        if (exchange_) exchange_->before_step();
        if (mirrors_) mirrors_->before_step();
        for (unit_state& u : units_) {
            u.optimizer.update(u.shard.view(), u.gradient_shard.view(), how.learning_rate * u.rate, scale);
        }
        if (exchange_) {
            count(traffic_.exchange, [&] {
                exchange_->after_step(static_cast<std::int64_t>(weights_version_),
                                      [&](std::size_t u) -> const list& { return units_[u].own_weights; });
            });
        }
        if (average_decay_ > 0) {
            const auto part = static_cast<float>(1.0 - average_decay_);
            for (unit_state& u : units_) {
                device_.for_each(static_cast<std::int64_t>(u.average.size()),
                                 step::move_average{part, u.shard.data(), u.average.data()});
            }
        }
        last_step_ = how;
        ++weights_version_;
    }

    /// Sends the moments to partner nodes if the configuration wants copies after this step. Collective.
    void mirror_moments() {
        if (mirrors_) count(traffic_.mirror, [&] { mirrors_->after_step(steps()); });
    }

    /// Source of the moments of lost shards, in words; empty if none were lost.
    const std::string& lost_moments() const { return lost_moments_; }

    /// Rank among the survivors.
    int rank() const { return world_.rank(); }
    /// Number of steps taken.
    int steps() const { return static_cast<int>(weights_version_ - 1); }

    /// Waits for the work of all queues, and drops its errors: after a failure. Copies that it has left behind keep or
    /// lose their version.
    void stop() {
        const auto succeeds = [](auto wait) {
            try {
                wait();
                return true;
            } catch (const std::exception&) {
                return false;
            }
        };
        succeeds([&] { zeropp::wait_for(world_, gather_queue_.exec()); });
        succeeds([&] { zeropp::wait_for(world_, reduce_queue_.exec()); });
        if (last_store_ && !(last_store_->stored && succeeds([&] { device_.wait(*last_store_->stored); }))) {
            undo_last_store();
        }
        if (mirrors_ && !succeeds([&] { zeropp::wait_for(world_, mirrors_->queue().exec()); })) mirrors_->invalidate();
    }

    /// This rank's master weights of a unit: its shards of the tensors, one behind the other.
    zeropp::view<const float, space> masters(int unit) const {
        return units_[static_cast<std::size_t>(unit)].shard.view();
    }

    /// Both moments of these weights.
    std::array<zeropp::view<float, space>, 2> moments(int unit) const {
        return units_[static_cast<std::size_t>(unit)].optimizer.moments();
    }

    /// Their average, if configured.
    zeropp::view<const float, space> average(int unit) const {
        return units_[static_cast<std::size_t>(unit)].average.view();
    }

    /// Bytes of arrays on this rank: states, buffers and scratch memory, without activations.
    std::size_t memory_bytes() const {
        const std::size_t elements = full_[0].size() + full_[1].size() + gradient_[0].size() + gradient_[1].size();
        std::size_t bytes = elements * sizeof(float) + gather_scratch_.view().size() + reduce_scratch_.view().size();
        for (const unit_state& u : units_) {
            bytes += (u.shard.size() + u.gradient_shard.size() + u.average.size()) * sizeof(float) +
                     u.optimizer.memory_bytes() + u.secondary_storage.view().size() + u.feedback_storage.view().size();
        }
        return bytes + (exchange_ ? exchange_->memory_bytes() : 0) + (mirrors_ ? mirrors_->memory_bytes() : 0);
    }

    /// Sum of all ranks' values, in rank order, so that all ranks get equal bits.
    double sum_over_ranks(double value) { return rank_values_.sum(device_, gather_queue_, world_, value); }

    /// Bytes that this rank has sent.
    const phase_traffic& traffic() const { return traffic_; }

private:
    friend class engine_recovery<Device, Transport, Formats>;

    /// This engine, which has all ranks. Throws zeropp::error with local steps, where it has an island's.
    zero3_engine& whole() {
        if (exchange_) throw zeropp::error("zero3_gpt: expected no local steps, to go on without a rank");
        return *this;
    }

    using floats = array<float, space>;
    using list = zeropp::tensor_list<float, space>;

    template <class Q>
    using secondary_of = zeropp::secondary_partition<Q, space>;
    template <class Exact>
    using replica_of = zeropp::secondary_replica<Exact, space>;
    template <class Hops>
    using feedback_of = zeropp::error_feedback<Hops, typename Formats::residuals, space>;
    /// One object for a format of `Named`, in a vector since it is not copied; or none.
    template <class Named, template <class> class Of>
    using optional_of = std::vector<typename variant_over<typename Named::variant, Of>::type>;

    struct unit_state {
        std::size_t parameters;
        typename Formats::weights::variant weight_format;
        typename Formats::gradients::variant gradient_format;
        floats shard;           // master weights: this rank's shards of the unit's tensors, one behind the other
        floats gradient_shard;  // this rank's shards of the mean over ranks
        floats average;         // of `shard` over steps; empty if not configured
        list own_weights;       // the shards in `shard`
        std::optional<list> own_average;   // the shards in `average`
        std::array<list, 2> full_weights;  // in either of full_
        list full_gradient;
        list own_gradient;  // the shards in `gradient_shard`; in stage 0 all of it
        adamw<Device> optimizer;
        double rate;  // factor of the learning rate
        zeropp::workspace<space> secondary_storage;
        optional_of<typename Formats::weights, secondary_of> secondary;    // hpZ alone
        optional_of<typename Formats::replicas, replica_of> node_replica;  // hpZ and differences
        zeropp::workspace<space> feedback_storage;
        optional_of<typename Formats::gradients, feedback_of> feedback;
    };

    /// After a store that failed: the unit's partition holds the version before. A replica differs from its version by
    /// at most one update, unless there was none before.
    void undo_last_store() {
        unit_state& u = units_[last_store_->unit];
        for (auto& kept : u.secondary) std::visit([&](auto& s) { s.restore(last_store_->before); }, kept);
        for (auto& kept : u.node_replica) {
            const auto version = last_store_->before ? std::optional(weights_version_) : std::nullopt;
            std::visit([&](auto& r) { r.stamp(version); }, kept);
        }
    }

    /// A list of the sizes of `tensors`, in other memory.
    static list like(const list& tensors, const zeropp::view<float, space>& memory) {
        std::vector<std::size_t> sizes;
        for (std::size_t t = 0; t != tensors.size(); ++t) sizes.push_back(tensors[t].size());
        return list(listed(memory, sizes));
    }

    static constexpr zeropp::cast_to<float> exact{};

    /// The device can update weights kept in the format Kept by differences in the format Q.
    template <class Q, class Kept>
    static constexpr bool has_codec =
        zeropp::difference_codec<typename Device::execution, Q, typename Kept::element_type>;

    /// Name of the format without quantization.
    static std::string plain(const deepspeed_config& config) { return config.bf16 ? "bf16" : "fp32"; }
    /// Name of the format of weights, or of their differences.
    static std::string weights_named_by(const deepspeed_config& config) {
        return config.zero.quantized_weights ? config.zeropp.weight_quantizer : plain(config);
    }

    struct visit {
        int unit;
        bool backward;
    };

    /// Quantizers of an all-reduce: its all-gather phase takes the last one of a reduce-scatter.
    template <class Hops>
    static auto with_all_gather(const Hops& hop) {
        return zeropp::hops{hop.at(zeropp::level<0>), hop.at(zeropp::level<1>), hop.last(), hop.last()};
    }

    zeropp::all_reduce_options all_mean() const { return {.operation = mean_.operation, .chunks = mean_.chunks}; }

    static std::size_t parity(int unit) { return static_cast<std::size_t>(unit % 2); }

    static std::int64_t stretches(std::int64_t count) {
        return (count + step::sum_squares::stretch - 1) / step::sum_squares::stretch;
    }

    /// Tensors of these sizes in elements, one behind the other from the start of `memory`.
    static std::vector<zeropp::list_tensor<float, space>> listed(const zeropp::view<float, space>& memory,
                                                                 std::span<const std::size_t> sizes) {
        std::vector<zeropp::list_tensor<float, space>> tensors;
        std::size_t begin = 0;
        for (const std::size_t size : sizes) {
            tensors.emplace_back(memory.subview(begin, size));
            begin += size;
        }
        return tensors;
    }

    void add_unit(int unit, const deepspeed_config& config, std::uint64_t seed) {
        const std::size_t n = network_.unit_parameters(unit);
        std::vector<float> whole(n);
        network_.initialise(unit, seed, whole);
        std::vector<std::size_t> sizes, own_sizes;
        std::vector<float> own;
        std::size_t decayed = 0;
        for (const unit_tensor& t : network_.tensors(unit)) {
            const zeropp::partition part(t.size, replicated_ ? 1 : island_.size());
            const int r = replicated_ ? 0 : island_.rank();
            const auto first = whole.begin() + static_cast<std::ptrdiff_t>(t.begin + part.offset(r));
            own.insert(own.end(), first, first + static_cast<std::ptrdiff_t>(part.size(r)));
            sizes.push_back(t.size);
            own_sizes.push_back(part.size(r));
            decayed += std::clamp(t.decayed, part.offset(r), part.offset(r) + part.size(r)) - part.offset(r);
        }
        floats shard(own.size()), gradient_shard(own.size());
        device_.upload(shard.data(), std::span<const float>(own));
        floats average(average_decay_ > 0 ? own.size() : 0);
        device_.upload(average.data(), std::span<const float>(own).first(average.size()));
        // Only secondary partitions and replicas depend on the groups.
        const zeropp::three_level& ranks = (hpz_ ? secondary_comm_ : weights_comm_).topology();
        const adamw_options options{.beta1 = config.optimizer.beta1,
                                    .beta2 = config.optimizer.beta2,
                                    .epsilon = config.optimizer.eps,
                                    .weight_decay = config.optimizer.weight_decay};
        const auto own_weights = listed(shard.view(), own_sizes);
        std::optional<list> own_average;
        if (average_decay_ > 0) own_average.emplace(listed(average.view(), own_sizes));
        const auto own_gradient = listed(gradient_shard.view(), own_sizes);
        const deepspeed_config::zeropp_settings& names = config.zeropp;
        const bool embedding = unit == 0 || unit == network_.head_unit();
        const bool quantized_gradients = config.zero.quantized_gradients;
        const std::string lossless = plain(config);
        units_.push_back(
            {n,
             Formats::weights::parse(differences_ ? lossless : weights_named_by(config)),
             Formats::gradients::parse(quantized_gradients ? names.gradient_quantizer_intra_node : lossless,
                                       quantized_gradients ? names.gradients_inter_node(embedding) : lossless,
                                       quantized_gradients ? names.gradients_inter_site(embedding) : lossless),
             std::move(shard),
             std::move(gradient_shard),
             std::move(average),
             list(own_weights),
             std::move(own_average),
             {list(ranks, listed(full_[0].view(), sizes)), list(ranks, listed(full_[1].view(), sizes))},
             list(ranks, listed(gradient_[parity(unit)].view(), sizes)),
             replicated_ ? list(ranks, own_gradient) : list(own_gradient),
             adamw<Device>(device_, options, own.size(), decayed),
             embedding ? 1.0 : names.block_rate,
             zeropp::workspace<space>(0),
             {},
             {},
             zeropp::workspace<space>(0),
             {}});
        stretches_ += static_cast<std::size_t>(stretches(static_cast<std::int64_t>(own.size())));

        const zeropp::three_level& nodes = weights_comm_.topology();
        const list& full = units_.back().full_gradient;
        std::visit(
            [&](const auto& q) {
                largest_gather_ =
                    std::max({largest_gather_, zeropp::quantized_all_gather_workspace_bytes(nodes, q, full),
                              zeropp::quantized_all_gather_workspace_bytes(nodes, exact, full)});
            },
            units_.back().weight_format);
        std::visit(
            [&]<class Hops>(const Hops& hop) {
                if (replicated_) {
                    largest_reduce_ = std::max(largest_reduce_, zeropp::quantized_all_reduce_workspace_bytes(
                                                                    nodes, with_all_gather(hop), full, all_mean()));
                    return;
                }
                largest_reduce_ =
                    std::max(largest_reduce_,
                             zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(nodes, hop, full, mean_));
                if (feedback_) add_feedback<feedback_of<Hops>>(units_.back());
            },
            units_.back().gradient_format);
        if (differences_) {
            add_replica(units_.back());
        } else if (hpz_) {
            add_secondary(units_.back());
        }
        if (exchange_) exchange_->add(units_.back().own_weights);
        if (mirrors_) {
            const unit_state& u = units_.back();
            const auto moments = u.optimizer.moments();
            mirrors_->add(u.full_gradient, {like(u.own_weights, moments[0]), like(u.own_weights, moments[1])});
        }
    }

    void add_replica(unit_state& u) {
        std::visit(
            [&]<class Exact>(const auto& q, const Exact& kept) {
                using replica = replica_of<Exact>;
                const zeropp::three_level& ranks = secondary_comm_.topology();
                u.secondary_storage =
                    zeropp::workspace<space>(replica::storage_bytes(ranks, u.full_gradient, island_.rank()));
                u.node_replica.emplace_back(std::in_place_type<replica>, ranks, island_.rank(), u.full_gradient,
                                            u.secondary_storage.view());
                largest_gather_ = std::max(
                    {largest_gather_, zeropp::quantized_update_gather_workspace_bytes(ranks, q, kept, u.full_gradient),
                     zeropp::secondary_partition_gather_workspace_bytes(ranks, kept, u.full_gradient)});
            },
            difference_formats_.differences, difference_formats_.replicas);
    }

    void add_secondary(unit_state& u) {
        std::visit(
            [&]<class Q>(const Q& q) {
                using secondary = secondary_of<Q>;
                const int group = secondary_comm_.group_size();
                u.secondary_storage = zeropp::workspace<space>(secondary::storage_bytes(q, u.full_gradient, group));
                u.secondary.emplace_back(std::in_place_type<secondary>, q, u.full_gradient, group,
                                         secondary_comm_.index(), u.secondary_storage.view());
                largest_gather_ = std::max(
                    largest_gather_, zeropp::secondary_partition_gather_workspace_bytes(group, q, u.full_gradient));
            },
            secondary_format_);
    }

    template <class Feedback>
    void add_feedback(unit_state& u) {
        const zeropp::three_level& nodes = gradient_comm_.topology();
        u.feedback_storage = zeropp::workspace<space>(Feedback::storage_bytes(nodes, u.full_gradient));
        u.feedback.emplace_back(std::in_place_type<Feedback>, nodes, u.full_gradient, u.feedback_storage.view());
    }

    void start_gather(std::size_t v) {
        const visit& now = visits_[v];
        unit_state& u = units_[static_cast<std::size_t>(now.unit)];
        last_store_.reset();
        const auto stores = [&](const auto& kept) {
            last_store_ = {static_cast<std::size_t>(now.unit), kept.version(), {}};
        };
        const list& full = u.full_weights[v % 2];
        // Computation so far uses this buffer, and after a step also the shard.
        gather_queue_.exec().wait(device_.record());
        if (replicated_) {
            ready_[v % 2] = gather_queue_.exec().record();
            return;
        }
        if (kind_ != weights_kind::quantized) {
            zeropp::quantized_all_gather(gather_queue_.exec(), weights_comm_, exact,
                                         kind_ == weights_kind::average ? *u.own_average : u.own_weights, full, {},
                                         gather_scratch_.view());
            ready_[v % 2] = gather_queue_.exec().record();
            return;
        }
        count(now.backward ? traffic_.backward_gather : traffic_.forward_gather, [&] {
            if (differences_) {
                std::visit(
                    [&]<class Q, class Replica>(const Q& q, Replica& replica) {
                        if (replica.version() == weights_version_) {
                            zeropp::secondary_partition_gather(gather_queue_.exec(), secondary_comm_, replica,
                                                               weights_version_, full, gather_scratch_.view());
                        } else if constexpr (has_codec<Q, Replica>) {
                            stores(replica);
                            zeropp::quantized_update(gather_queue_.exec(), secondary_comm_, q, u.own_weights,
                                                     replica.to(weights_version_, full), {}, gather_scratch_.view());
                        }
                    },
                    difference_formats_.differences, u.node_replica.front());
            } else if (u.secondary.empty()) {
                std::visit(
                    [&](const auto& q) {
                        zeropp::quantized_all_gather(gather_queue_.exec(), weights_comm_, q, u.own_weights, full, {},
                                                     gather_scratch_.view());
                    },
                    u.weight_format);
            } else if (now.backward) {
                std::visit(
                    [&](const auto& secondary) {
                        zeropp::secondary_partition_gather(gather_queue_.exec(), secondary_comm_, secondary, version_,
                                                           full, gather_scratch_.view());
                    },
                    u.secondary.front());
            } else {
                std::visit(
                    [&](const auto& q, auto& secondary) {
                        zeropp::quantized_all_gather(gather_queue_.exec(), weights_comm_, q, u.own_weights, full, {},
                                                     gather_scratch_.view());
                        stores(secondary);
                        secondary.store(gather_queue_.exec(), full, version_);
                    },
                    u.weight_format, u.secondary.front());
            }
        });
        ready_[v % 2] = gather_queue_.exec().record();
        if (last_store_) last_store_->stored = gather_queue_.exec().record();
        if (!overlap_) gather_queue_.exec().wait();
    }

    /// Adds the bytes that `collective` makes this rank send to `to`.
    template <class Collective>
    void count(zeropp::volume& to, Collective collective) {
        const zeropp::traffic before = world_.total();
        collective();
        const zeropp::traffic after = world_.total();
        to.intra_node += after.intra_node_bytes - before.intra_node_bytes;
        to.inter_node += after.inter_node_bytes - before.inter_node_bytes;
        to.inter_site += after.inter_site_bytes - before.inter_site_bytes;
    }

    const Device& device_;
    const model& network_;
    bool replicated_;
    double clipping_;
    double average_decay_;
    zeropp::reduce_options mean_;
    bool overlap_;
    bool hpz_ = false;
    bool differences_ = false;  // of the weights that nodes keep
    bool feedback_ = false;
    weights_kind kind_ = weights_kind::quantized;
    typename Formats::weights::variant secondary_format_;
    difference_formats difference_formats_;

    transport_type& world_;
    transport_type island_;
    zeropp::communicator<zeropp::three_level, transport_type> weights_comm_;
    zeropp::communicator<zeropp::three_level, transport_type> secondary_comm_;
    zeropp::communicator<zeropp::three_level, transport_type> gradient_comm_;

    std::vector<unit_state> units_;
    std::size_t largest_gather_ = 0;
    std::size_t largest_reduce_ = 0;
    std::size_t stretches_ = 0;
    std::array<floats, 2> full_;      // whole weights of the current unit and the next one
    std::array<floats, 2> gradient_;  // whole gradients: one is written while the other is reduced
    zeropp::workspace<space> gather_scratch_{0};
    zeropp::workspace<space> reduce_scratch_{0};
    array<double, space> square_sums_;  // of the gradient, by stretches
    rank_values<Device> rank_values_;

    std::vector<visit> visits_;
    std::size_t next_visit_ = 0;
    std::uint64_t version_ = 0;          // of secondary partitions: number of the training step
    std::uint64_t weights_version_ = 1;  // of node replicas: number of the optimizer's steps, plus 1
    step_settings last_step_{};
    std::string lost_moments_;
    /// The store or update that the last visit has enqueued, if any, and the version before it.
    struct enqueued_store {
        std::size_t unit;
        std::optional<std::uint64_t> before;
        std::optional<typename Device::execution::event> stored;  // none if the call has thrown
    };
    std::optional<enqueued_store> last_store_;
    phase_traffic traffic_;

    std::array<typename Device::execution::event, 2> ready_;
    std::array<typename Device::execution::event, 2> reduced_;
    std::optional<island_exchange<Device, transport_type, Formats>> exchange_;  // with local steps
    std::optional<moment_mirrors<Device, transport_type, Formats>> mirrors_;    // if configured
    // Last, so that their destructors wait for the work before its memory is freed.
    typename Device::queue gather_queue_;
    typename Device::queue reduce_queue_;
};

}  // namespace zero3_gpt
