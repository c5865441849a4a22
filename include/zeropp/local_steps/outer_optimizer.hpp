#pragma once
/// \file
/// The outer optimizer of training with local steps: anchor and the rule's slots of one rank's shards.

#include <zeropp/codec/codec.hpp>
#include <zeropp/core/config.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/local_steps/outer_options.hpp>
#include <zeropp/topology/topology.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace zeropp {

/// Nesterov's step, torch.optim.SGD's with nesterov=True. It is the default rule by which an outer_optimizer moves
/// anchors. Any trivially copyable type with these members is a rule; its other members are its options.
struct nesterov {
    /// Number of floats that the rule keeps for each element. They are 0 at the start.
    static constexpr std::size_t slots = 1;
    /// Name of the rule and its own options, which ranks compare.
    constexpr agreed_text text() const { return "nesterov"; }
    /// New anchor of an element. `mean` is the mean over islands of the old anchor minus the weight: NaN if it is not
    /// finite. `kept` points to the element's floats, which the rule may change.
    ZEROPP_HOST_DEVICE float operator()(const outer_options& options, float anchor, float mean, float* kept) const {
        kept[0] = product(options.momentum, kept[0]) + mean;
        return anchor - product(options.learning_rate, mean + product(options.momentum, kept[0]));
    }
};

/// Type with the members of `nesterov`.
template <class Rule>
concept outer_rule =
    std::is_trivially_copyable_v<Rule> && requires(const Rule rule, const outer_options& options, float* kept) {
        { Rule::slots } -> std::convertible_to<std::size_t>;
        { rule.text() } -> std::convertible_to<agreed_text>;
        { rule(options, 0.0f, 0.0f, kept) } -> std::same_as<float>;
    };

namespace detail {

template <class T, std::size_t Slots>
struct outer_start {
    const T* weights;
    float* anchor;
    /// Floats of the first slot. A slot has `stride` floats, with padding.
    float* kept;
    std::size_t stride;

    ZEROPP_HOST_DEVICE void operator()(std::size_t i) const {
        anchor[i] = element_traits<T>::to_float(weights[i]);
        for (std::size_t s = 0; s != Slots; ++s) kept[s * stride + i] = 0.0f;
    }
};

template <class T>
struct outer_difference {
    const T* weights;
    const float* anchor;
    float* difference;

    ZEROPP_HOST_DEVICE void operator()(std::size_t i) const {
        difference[i] = anchor[i] - element_traits<T>::to_float(weights[i]);
    }
};

/// Outer step of element i: the rule's step of the anchor by the mean difference. Then sets the weight to
/// alpha * old weight + (1 - alpha) * anchor.
template <class T, outer_rule Rule>
struct outer_update {
    Rule rule;
    outer_options options;
    const float* mean;
    /// Floats of the rule's first slot. A slot has `stride` floats, with padding.
    float* kept;
    std::size_t stride;
    float* anchor;
    T* weights;

    ZEROPP_HOST_DEVICE void operator()(std::size_t i) const {
        // Makes an Inf NaN, so that the anchor gets NaN with all formats: block formats make an Inf NaN, `cast_to`
        // formats keep it.
        const float mean_difference = is_finite(mean[i]) ? mean[i] : quiet_nan;
        float of_element[Rule::slots == 0 ? 1 : Rule::slots];
        for (std::size_t s = 0; s != Rule::slots; ++s) of_element[s] = kept[s * stride + i];
        const float moved = rule(options, anchor[i], mean_difference, of_element);
        for (std::size_t s = 0; s != Rule::slots; ++s) kept[s * stride + i] = of_element[s];
        anchor[i] = moved;
        if (options.alpha == 0.0f) {
            weights[i] = element_traits<T>::from_float(moved);
        } else {
            const float own = element_traits<T>::to_float(weights[i]);
            weights[i] =
                element_traits<T>::from_float(product(options.alpha, own) + product(1.0f - options.alpha, moved));
        }
    }
};

}  // namespace detail

/// State of training with local steps on one rank. For the elements of the rank's shards, it has the anchor, the rule's
/// slots, and the difference that an exchange moves. The anchor is the common weights after the last exchange. Islands
/// train by themselves, and exchange their progress by outer_step every `every` steps. Refers to the caller's storage
/// of `storage_bytes(...)`, with any initial contents, which nothing else may use.
///
/// Memory     for each element of the rank's shards, 8 bytes and 4 for each slot of the rule: 12 with `nesterov`. For
///            each tensor, up to 3 such elements more
/// Requires   in all islands, the same tensors, the same rule and the same sequence of calls, from equal weights
/// Errors     a call that throws before `apply` leaves anchor and slots unchanged: begin the exchange again. This holds
///            also if the exchange's work fails later on a host_queue. If it fails on a stream, or only on other ranks,
///            call `restore(exchanges() - 1, false)` first. Where `apply` has run meanwhile, as in outer_step, the
///            anchor has moved: then give all islands equal weights, and `start`
/// Source     DiLoCo (arXiv 2311.08105); Streaming DiLoCo (arXiv 2501.18512)
template <class Space, outer_rule Rule = nesterov>
class outer_optimizer {
public:
    using space = Space;

    /// State for this rank's shards `weights`, an array or a tensor_list of any element type. `counterparts` is the
    /// topology of the ranks with equal shards, one in each island. `rule` moves the anchors. Call `start` before the
    /// first exchange. Allocates, and blocks in device_space. Throws precondition_error unless `storage` is large
    /// enough and aligned to 16 bytes.
    template <topology Topology, tensors_in<Space> Weights, mutable_array_in<Space> Array>
    outer_optimizer(const Topology& counterparts, const Weights& weights, Array&& storage, const Rule& rule = {})
        : rule_(rule), storage_(as_view<Space>(storage)), part_size_(part_size(weights)),
          differences_(listed(counterparts, weights)) {
        const std::string problem = workspace_problem(storage_, storage_bytes(weights));
        if (!problem.empty()) throw precondition_error("outer_optimizer: " + problem);
    }

    /// Moves the optimizer. A copy would write into the same storage, with another number of exchanges, so there is
    /// none.
    outer_optimizer(outer_optimizer&&) = default;
    /// Moves an optimizer here, in place of the state that this object referred to.
    outer_optimizer& operator=(outer_optimizer&&) = default;

    /// Bytes of storage that a rank needs for its shards `weights`.
    template <tensors_in<Space> Weights>
    static std::size_t storage_bytes(const Weights& weights) {
        return parts * part_size(weights) * sizeof(float);
    }

    /// Sets anchor = weights and the rule's slots to 0, the state before the first inner step. Enqueued on `exec`,
    /// without communication. Throws precondition_error unless `weights` have the shapes given to the constructor.
    template <execution Execution, tensors_in<Space> Weights>
    void start(const Execution& exec, const Weights& weights) {
        require(problem(weights));
        for_each_array<Execution>(exec, weights, [&]<class T>(const T* w, std::size_t begin) {
            return detail::outer_start<T, Rule::slots>{w, anchor_at(begin), kept_at(begin), part_size_};
        });
        restore(0, false);
    }

    /// Uses the exchange that outer_begin has begun, with one pass over the elements and no communication:
    ///   momentum = options.momentum * momentum + mean
    ///   anchor   = anchor - options.learning_rate * (mean + options.momentum * momentum)
    ///   weights  = options.alpha * weights + (1 - options.alpha) * anchor
    /// where mean is the mean over islands of anchor - weights as the exchange began. The first two lines are the step
    /// of `nesterov`; another rule computes the anchor by its own. In float, in this order, without fused
    /// multiply-adds: anchor and the rule's slots have the same bits in all islands, and so have weights if alpha is 0.
    /// Elements that are not finite in one island are NaN in all. Enqueued on `exec`; the exchange must be complete, or
    /// enqueued on `exec` before. Throws precondition_error if no exchange has begun, if the last one's work has failed
    /// on a host_queue, or for wrong arguments.
    template <execution Execution, mutable_tensors_in<Space> Weights>
    void apply(const Execution& exec, Weights&& weights, const outer_options& options) {
        require(options.problem());
        require(problem(weights));
        if (!pending()) {
            throw precondition_error("outer_optimizer", "an exchange that has begun",
                                     pending_ ? "one that failed" : "none");
        }
        for_each_array<Execution>(exec, weights, [&]<class T>(T* w, std::size_t begin) {
            return detail::outer_update<T, Rule>{
                rule_, options, difference_at(begin), kept_at(begin), part_size_, anchor_at(begin), w};
        });
        pending_ = false;
    }

    /// Number of exchanges that have begun since `start`, except those that have failed on a host_queue.
    std::uint64_t exchanges() const { return failed() ? completed_->load() : exchanges_; }
    /// True if the last exchange waits for `apply`, and has not failed on a host_queue.
    bool pending() const { return pending_ && !failed(); }
    /// Restores a saved state, in an optimizer made with the same arguments, from saved `exchanges()` and `pending()`.
    /// Copy the saved bytes of `state()` back, too.
    void restore(std::uint64_t exchanges, bool pending) {
        exchanges_ = exchanges;
        pending_ = pending;
        // Work that is still enqueued stores its number in the old counter.
        completed_ = std::make_shared<std::atomic<std::uint64_t>>(exchanges);
    }
    /// The rule. Between `apply` and the next exchange, all ranks may change its options alike.
    Rule& rule() { return rule_; }
    /// Memory of the state: anchor, the rule's slots and difference. Complete when the work of the last call is
    /// complete. Options of the rule are not in it.
    view<std::byte, Space> state() const { return storage_.subview(0, parts * part_size_ * sizeof(float)); }

    /// Anchor of array t of the weights, with the same bits in all islands.
    view<const float, Space> anchor(std::size_t t = 0) const { return {anchor_at(begin(t)), differences_[t].size()}; }

    /// Number of elements of the rank's shards.
    std::size_t elements() const { return differences_.elements(); }
    /// Tensors that an exchange moves: differences, then their mean. They give the sizes of scratch and error_feedback.
    const tensor_list<float, Space>& differences() const { return differences_; }

    // Members for outer_begin.

    /// Why `weights` do not have the shapes given to the constructor, as "expected ..., given ..."; empty if they do.
    template <tensors_in<Space> Weights>
    std::string problem(const Weights& weights) const {
        if constexpr (detail::is_tensor_list<std::remove_cvref_t<Weights>>) {
            if (weights.has_gaps() && weights.ranks() != 0)
                return "expected tensors without gaps, given some with gaps";
        }
        const auto arrays = detail::operand_of<Space>(weights);
        if (arrays.size() != differences_.size()) {
            return "expected weights of " + std::to_string(differences_.size()) + " tensors, given " +
                   std::to_string(arrays.size());
        }
        for (std::size_t t = 0; t != arrays.size(); ++t) {
            if (arrays[t].size() == differences_[t].size()) continue;
            return "expected weights of " + std::to_string(differences_[t].size()) + " elements in tensor " +
                   std::to_string(t) + ", given " + std::to_string(arrays[t].size());
        }
        return {};
    }
    /// Enqueues, for each element, difference = anchor - weight.
    template <execution Execution, tensors_in<Space> Weights>
    void take_difference(const Execution& exec, const Weights& weights) const {
        for_each_array<Execution>(exec, weights, [&]<class T>(const T* w, std::size_t begin) {
            return detail::outer_difference<T>{w, anchor_at(begin), difference_at(begin)};
        });
    }
    /// Counts an exchange. Call this once all work of the exchange is enqueued on `exec`.
    template <execution Execution>
    void advance(const Execution& exec) {
        const std::uint64_t next = exchanges() + 1;
        if constexpr (host_execution<Execution>) {
            // If earlier work on the queue fails, the queue also drops this store.
            exec.enqueue([completed = completed_, next] { completed->store(next); });
        } else {
            completed_->store(next);
        }
        exchanges_ = next;
        pending_ = true;
    }

private:
    /// True if a host_queue has dropped the work of the last exchange, and of `apply` if that was enqueued behind it.
    /// Then this object holds the only pointer to `completed_`, which has an older number.
    bool failed() const {
        const bool dropped = completed_.use_count() == 1;
        std::atomic_thread_fence(std::memory_order_acquire);
        return dropped && completed_->load() != exchanges_;
    }

    static void require(const std::string& problem) {
        if (!problem.empty()) throw precondition_error("outer_optimizer: " + problem);
    }

    /// Number of floats that `n` floats take in storage: `n`, rounded up to a multiple of 16 bytes.
    static std::size_t padded(std::size_t n) { return round_up(n, workspace_alignment / sizeof(float)); }

    /// Number of arrays in storage: anchor, the rule's slots, difference.
    static constexpr std::size_t parts = 2 + Rule::slots;
    /// Number of floats, with padding, of each array in storage.
    template <class Weights>
    static std::size_t part_size(const Weights& weights) {
        const auto arrays = detail::operand_of<Space>(weights);
        std::size_t elements = 0;
        for (std::size_t t = 0; t != arrays.size(); ++t) elements += padded(arrays[t].size());
        return elements;
    }

    float* part(std::size_t p, std::size_t begin) const {
        return reinterpret_cast<float*>(storage_.data()) + p * part_size_ + begin;
    }
    float* anchor_at(std::size_t begin) const { return part(0, begin); }
    float* kept_at(std::size_t begin) const { return part(1, begin); }
    float* difference_at(std::size_t begin) const { return part(parts - 1, begin); }
    /// Index of the first element of array t of the weights, in each array in storage.
    std::size_t begin(std::size_t t) const {
        return static_cast<std::size_t>(differences_[t].data() - difference_at(0));
    }

    template <topology Topology, class Weights>
    tensor_list<float, Space> listed(const Topology& counterparts, const Weights& weights) const {
        const auto arrays = detail::operand_of<Space>(weights);
        std::vector<list_tensor<float, Space>> tensors;
        float* first = difference_at(0);
        for (std::size_t t = 0; t != arrays.size(); ++t) {
            tensors.emplace_back(view<float, Space>(first, arrays[t].size()));
            first += padded(arrays[t].size());
        }
        return tensor_list<float, Space>(counterparts, tensors);
    }

    /// Enqueues f(i) for each element i of each array t of the weights, with f = function(address of t, begin(t)).
    template <execution Execution, class Weights, class Function>
    void for_each_array(const Execution& exec, Weights& weights, const Function& function) const {
        const auto arrays = detail::operand_of<Space>(weights);
        for (std::size_t t = 0; t != arrays.size(); ++t) {
            if (arrays[t].size() == 0) continue;
            codec<Execution>::each(exec, arrays[t].size(), function(arrays[t].data(), begin(t)));
        }
    }

    Rule rule_;
    view<std::byte, Space> storage_;
    std::size_t part_size_;
    tensor_list<float, Space> differences_;
    std::uint64_t exchanges_ = 0;
    bool pending_ = false;
    /// Number, from 1 on, of the last exchange with complete work. Enqueued work stores it.
    std::shared_ptr<std::atomic<std::uint64_t>> completed_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

}  // namespace zeropp
