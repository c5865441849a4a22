#pragma once
/// \file
/// Error feedback for qgZ and the all-reduce: adds the quantization error of a gradient to the next gradient.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/divided.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace zeropp {

/// Options of error feedback; equal on all ranks.
struct error_feedback_options {
    /// Weight b of previous residuals in LoCo's moving average e <- b e + (1 - b) ((g + e) - decode(encode(g + e))). In
    /// [0, 1); 0 is plain error feedback.
    float decay = 0.0f;
    /// Number of uses after which residuals are forgotten; 0 for never.
    std::uint64_t reset_every = 0;
    /// Keeps the residuals from before the last use too, so that `undo` can restore them; twice the memory.
    bool undoable = false;
};

/// State of error feedback besides the residuals, to be saved with them.
struct error_feedback_state {
    /// Number of uses since the start or the last reset; at 0 the residuals count as zeros.
    std::uint64_t uses = 0;
    /// Loss scale of the stored residuals.
    float loss_scale = 1.0f;

    friend bool operator==(const error_feedback_state&, const error_feedback_state&) = default;
};

/// `Back` of a reduction without an all-gather phase.
struct no_way_back {};

/// Residuals of one rank for a hierarchical_quantized_reduce_scatter of one tensor or list: on the first hop of its
/// whole gradient, on the second of its node's sums for the ranks of its index. For a quantized_all_reduce, `Back` is
/// the quantizer of the all-gather phase, with residuals of this rank's shard of the result. Refers to the caller's
/// storage of `storage_bytes(...)`, with any initial contents.
///
/// Storage    format of residuals: `residuals_in_int8`, `residuals_in_bf16`, `residuals_in_fp32`, or a type with a
///            member template `storage<Q>`, the quantizer that stores residuals of Q. Blocks with parameters must not
///            be larger than the larger quantizer's, where chunks end
/// Memory     (1 + 1/k) elements of Storage per element of the gradient, for nodes of k ranks; without the first term
///            if nodes have one rank, without the second if there is one node. An all-gather phase takes 1/P more for P
///            ranks. Twice that if undoable. INT8 in blocks of 128 and k = 8: 1.16 bytes
/// Requires   the same quantizers, options and sequence of calls on all ranks
/// Errors     a reduction that throws once messages move leaves residuals partly of this step: `reset` them, on all
///            ranks. If undoable they are as before; ranks where it did not throw, or threw later on a queue, `undo`
/// Source     Seide et al., 1-bit SGD (Interspeech 2014); LoCo (arXiv 2407.04480)
template <quantizer Inside, quantizer Across, class Storage, class Space, class Back = no_way_back>
class error_feedback {
public:
    using space = Space;
    using inside_storage = typename Storage::template storage<Inside>;
    using across_storage = typename Storage::template storage<Across>;
    /// Without an all-gather phase, `back_storage` is Across's.
    static constexpr bool has_way_back = !std::same_as<Back, no_way_back>;
    using back_storage = typename Storage::template storage<std::conditional_t<has_way_back, Back, Across>>;

private:
    static constexpr int back_block_size() {
        if constexpr (has_way_back) return Back::block_size;
        return 1;
    }
    template <quantizer Stored>
    static constexpr bool lies_in_chunks = params_bytes<Stored> == 0 ||
                                           Stored::block_size <=
                                               std::max({Inside::block_size, Across::block_size, back_block_size()});
    static_assert(lies_in_chunks<inside_storage> && lies_in_chunks<across_storage> && lies_in_chunks<back_storage>,
                  "error_feedback: the blocks of Storage must not be larger than those of the larger quantizer");

public:
    /// True if this is for a reduction with these quantizers.
    template <class I, class A, class B = no_way_back>
    static constexpr bool is_for = std::same_as<I, Inside>&& std::same_as<A, Across>&& std::same_as<B, Back>;

    /// For `gradient`, an element count or a tensor_list of whole gradients, over `ranks`. Throws precondition_error
    /// unless `storage` is large enough and aligned to 16 bytes, and decay is in [0, 1).
    template <topology Topology, mutable_array_in<Space> Array>
    error_feedback(const Topology& ranks, const tensors_shape& gradient, const error_feedback_options& options,
                   Array&& storage)
        : sizes_(sizes_of(ranks, gradient)), options_(options), storage_(as_view<Space>(storage)) {
        const std::string problem = workspace_problem(storage_, storage_bytes(ranks, gradient, options));
        if (!problem.empty()) throw precondition_error("error_feedback: " + problem);
        if (!(options.decay >= 0.0f && options.decay < 1.0f)) {
            throw precondition_error("error_feedback", "a decay from 0 to below 1", std::to_string(options.decay));
        }
    }

    /// Not copied: two copies would write into one storage, each with its own count of uses.
    error_feedback(error_feedback&&) = default;
    error_feedback& operator=(error_feedback&&) = default;

    /// Bytes of storage on each rank.
    template <topology Topology>
    static std::size_t storage_bytes(const Topology& ranks, const tensors_shape& gradient,
                                     const error_feedback_options& options) {
        return sizes_of(ranks, gradient).of_one() * (options.undoable ? 2 : 1);
    }

    /// Sets the loss scale of gradients from the next use on; 1 at first. Residuals are converted when they are used.
    /// Throws precondition_error unless it is positive and finite.
    void set_loss_scale(float scale) {
        if (!(scale > 0.0f && is_finite(scale))) {
            throw precondition_error("error_feedback", "a loss scale above zero and finite", std::to_string(scale));
        }
        next_loss_scale_ = scale;
    }

    /// Makes residuals zero from the next use on.
    void reset() {
        state_.uses = 0;
        undo_left_ = false;
    }

    /// Restores the residuals from before the last use, for a framework that skips that use's step. Once for each use.
    /// Throws precondition_error if there is nothing to undo or the option `undoable` is not set.
    void undo() {
        if (!undo_left_) {
            throw precondition_error("error_feedback",
                                     options_.undoable ? "a use since the last undo or reset" : "the option `undoable`",
                                     "an undo without");
        }
        state_ = before_;
        generation_ = 1 - generation_;
        undo_left_ = false;
    }

    /// To save: `state()` and the bytes of `residuals()`. To restore, on feedback made with the same arguments: copy
    /// these bytes to `residuals()` and call `restore`, which throws as `set_loss_scale`.
    error_feedback_state state() const { return state_; }
    void restore(const error_feedback_state& state) {
        set_loss_scale(state.loss_scale);
        state_ = state;
        undo_left_ = false;
    }

    /// Bytes of the current residuals, complete when the last reduction is.
    view<std::byte, Space> residuals() const {
        return storage_.subview(static_cast<std::size_t>(generation_) * sizes_.of_one(), sizes_.of_one());
    }

    const error_feedback_options& options() const { return options_; }

    /// Why this cannot be used for `gradient` over `ranks`, as "expected ..., given ..."; empty if it can.
    template <class Division, topology Topology>
    std::string problem(const Division& gradient, const Topology& ranks) const {
        const sizes wanted(ranks, gradient);
        if (sizes_ == wanted) return {};
        return "expected error feedback for " + wanted.text() + ", given one for " + sizes_.text();
    }

    /// For collectives: the codec's `feedback` for each hop of the next use; `advance` once all work of that use is
    /// enqueued.
    feedback<inside_storage> inside() const { return hop<inside_storage>(0); }
    feedback<across_storage> across() const { return hop<across_storage>(sizes_.inside); }
    feedback<back_storage> back() const { return hop<back_storage>(sizes_.inside + sizes_.across); }
    void advance() {
        before_ = state_;
        undo_left_ = options_.undoable;
        if (options_.undoable) generation_ = 1 - generation_;
        state_.uses = starts_anew() ? 1 : state_.uses + 1;
        state_.loss_scale = next_loss_scale_;
    }

    /// The next use in words, compared between ranks by `checked`.
    short_text text() const {
        short_text t("feedback ");
        t.append(state_.uses).append(", decay ").append(options_.decay);
        return t.append(", scale ").append(next_loss_scale_);
    }

private:
    /// Bytes of one generation of residuals.
    struct sizes {
        std::size_t elements;
        std::size_t slice;
        message_place last;
        short_text list;
        int ranks;
        int groups;
        std::size_t inside = 0;
        std::size_t across = 0;
        std::size_t back = 0;

        template <topology Topology, class Division>
        sizes(const Topology& topology, const Division& gradient)
            : elements(gradient.elements()), slice(gradient.last_count()), last(gradient.last()), list(gradient.text()),
              ranks(topology.size()), groups(topology.groups()) {
            if (has_hop_inside(topology))
                inside = static_cast<std::size_t>(ranks) * detail::whole_wire_bytes<inside_storage>(gradient);
            if (has_hop_across(topology))
                across = static_cast<std::size_t>(groups) * detail::whole_wire_bytes<across_storage>(gradient);
            if (has_way_back) back = detail::whole_wire_bytes<back_storage>(gradient);
        }

        std::size_t of_one() const { return inside + across + back; }
        std::string text() const {
            return (list == short_text() ? "" : list.str() + ", of ") + std::to_string(elements) + " elements over " +
                   std::to_string(ranks) + " ranks in " + std::to_string(groups) + " groups";
        }
        friend bool operator==(const sizes&, const sizes&) = default;
    };

    template <topology Topology>
    static sizes sizes_of(const Topology& ranks, const tensors_shape& gradient) {
        return detail::over_ranks(ranks, gradient, [&](const auto& whole) { return sizes(ranks, whole); });
    }

    bool starts_anew() const {
        return state_.uses == 0 || (options_.reset_every != 0 && state_.uses >= options_.reset_every);
    }

    template <quantizer Stored>
    feedback<Stored> hop(std::size_t offset) const {
        std::byte* const held = residuals().data() + offset;
        std::byte* const kept =
            options_.undoable ? storage_.data() + static_cast<std::size_t>(1 - generation_) * sizes_.of_one() + offset
                              : held;
        return {Stored{},     starts_anew() ? nullptr : held,       kept,
                sizes_.slice, next_loss_scale_ / state_.loss_scale, options_.decay,
                sizes_.last};
    }

    sizes sizes_;
    error_feedback_options options_;
    view<std::byte, Space> storage_;
    error_feedback_state state_;
    error_feedback_state before_;
    float next_loss_scale_ = 1.0f;
    int generation_ = 0;
    bool undo_left_ = false;
};

/// A reduction without error feedback.
struct no_error_feedback {
    /// Members of error_feedback that collectives use: they find no problem, agree on nothing and keep nothing.
    template <class Division, class Topology>
    static std::string problem(const Division&, const Topology&) {
        return {};
    }
    static short_text text() { return {}; }
    static no_feedback inside() { return {}; }
    static no_feedback across() { return {}; }
    static no_feedback back() { return {}; }
    static void advance() {}
};

}  // namespace zeropp
