#pragma once
/// \file
/// Error feedback for qgZ and the all-reduce: adds the quantization error of a gradient to the next gradient.

#include <zeropp/codec/codec.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace zeropp {

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
///            ranks. INT8 in blocks of 128 and k = 8: 1.16 bytes
/// Requires   the same quantizers and sequence of calls on all ranks
/// Errors     a reduction that throws once messages move leaves residuals partly of this step: `reset` them, on all
///            ranks
/// Source     Seide et al., 1-bit SGD (Interspeech 2014)
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
    /// unless `storage` is large enough and aligned to 16 bytes.
    template <topology Topology, mutable_array_in<Space> Array>
    error_feedback(const Topology& ranks, const tensors_shape& gradient, Array&& storage)
        : sizes_(sizes_of(ranks, gradient)), storage_(as_view<Space>(storage)) {
        const std::string problem = workspace_problem(storage_, sizes_.all());
        if (!problem.empty()) throw precondition_error("error_feedback: " + problem);
    }

    /// Not copied: two copies would write into one storage, each with its own count of uses.
    error_feedback(error_feedback&&) = default;
    error_feedback& operator=(error_feedback&&) = default;

    /// Bytes of storage on each rank.
    template <topology Topology>
    static std::size_t storage_bytes(const Topology& ranks, const tensors_shape& gradient) {
        return sizes_of(ranks, gradient).all();
    }

    /// Makes residuals zero from the next use on.
    void reset() { uses_ = 0; }

    /// Number of uses since the start or the last reset; at 0 the residuals count as zeros. To save: this number and
    /// the bytes of `residuals()`. To restore, on feedback made with the same arguments: copy these bytes to
    /// `residuals()`, and the number here.
    std::uint64_t uses() const { return uses_; }
    void restore(std::uint64_t uses) { uses_ = uses; }

    /// Bytes of the current residuals, complete when the last reduction is.
    view<std::byte, Space> residuals() const { return storage_.subview(0, sizes_.all()); }

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
    void advance() { ++uses_; }

    /// The next use in words, compared between ranks by `checked`.
    short_text text() const { return short_text("feedback ").append(uses_); }

private:
    /// Bytes of the residuals.
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

        std::size_t all() const { return inside + across + back; }
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

    template <quantizer Stored>
    feedback<Stored> hop(std::size_t offset) const {
        std::byte* const held = storage_.data() + offset;
        return {Stored{}, uses_ == 0 ? nullptr : held, held, sizes_.slice, sizes_.last};
    }

    sizes sizes_;
    view<std::byte, Space> storage_;
    std::uint64_t uses_ = 0;
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
