#pragma once
/// \file
/// Error feedback for qgZ and the all-reduce: adds the quantization error of a gradient to the next gradient.

#include <zeropp/codec/codec.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/hops.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace zeropp {

namespace detail {
/// Message formats of residuals (`formats`): for each quantizer Q of `Hops`, of the quantizer `Storage::storage<Q>`.
/// `lie_in_chunks` is true if all blocks with parameters have at most the size of the largest block of `Hops`.
template <class Hops, class Storage>
struct stored_residuals;
template <quantizer... Q, class Storage>
struct stored_residuals<hops<Q...>, Storage> {
    template <quantizer Stored>
    static constexpr bool lies_in_chunks = params_bytes<Stored> == 0 || Stored::block_size <= hops<Q...>::largest_block;
    static constexpr bool lie_in_chunks = (lies_in_chunks<typename Storage::template storage<Q>> && ...);
    static constexpr std::array formats{format_of<typename Storage::template storage<Q>>...};
};
}  // namespace detail

/// Residuals (quantization errors) that a rank keeps from one reduction of a tensor, or list, for the next. `Hops` is
/// the `hops` of the reduction: the list of its quantizers. The hop of level 0 has residuals of the whole gradient.
/// Each later hop has residuals of the sums that this rank sends. The all-gather phase has residuals of this rank's
/// shard of the result. Refers to the caller's storage of `storage_bytes(...)`, with any initial contents.
///
/// Storage    format of residuals: `residuals_in_int8`, `residuals_in_bf16`, `residuals_in_fp32`, or a type with a
///            member template `storage<Q>`, the quantizer that stores residuals of Q. Blocks with parameters must not
///            be larger than the largest block of `Hops`, because chunks end where the largest blocks end
/// Memory     (1 + 1/k) elements of Storage per element of the gradient, for nodes of k ranks; without the first term
///            if nodes have one rank, without the second if there is one node. With three levels, 1/m more for sites of
///            m ranks. An all-gather phase takes 1/P more for P ranks. INT8 in blocks of 128 and k = 8: 1.16 bytes. If
///            nodes differ in size, all ranks take as much as the one that serves the most slots (served_slots)
/// Requires   the same quantizers and sequence of calls on all ranks
/// Errors     a reduction that throws once messages move leaves residuals partly of this step: `reset` them, on all
///            ranks
/// Source     Seide et al., 1-bit SGD (Interspeech 2014)
template <class Hops, class Storage, class Space>
class error_feedback {
    static_assert(detail::stored_residuals<Hops, Storage>::lie_in_chunks,
                  "error_feedback: the blocks of Storage must not be larger than those of the larger quantizer");

public:
    /// Type of the reduction's quantizers: one for each level, then for an all-reduce one for the all-gather phase.
    using hops_type = Hops;
    using space = Space;
    /// Type of the quantizer that stores the residuals of `Level`. The all-gather phase has the index Hops::count - 1.
    template <int Level>
    using storage_at = typename Storage::template storage<typename Hops::template at_level<Level>>;

    /// Residuals, zero at first, for `gradient` over the topology `ranks`. `gradient` is an element count, or a
    /// tensor_list of whole gradients. Throws precondition_error unless `storage` has `storage_bytes(ranks, gradient)`
    /// bytes and is aligned to 16 bytes.
    template <topology Topology, mutable_array_in<Space> Array>
    error_feedback(const Topology& ranks, const tensors_shape& gradient, Array&& storage)
        : sizes_(sizes_of(ranks, gradient)), storage_(as_view<Space>(storage)) {
        const std::string problem = workspace_problem(storage_, sizes_.all());
        if (!problem.empty()) throw precondition_error("error_feedback: " + problem);
    }

    /// Moves error feedback. A copy would write into the same storage, with another number of uses, so there is none.
    error_feedback(error_feedback&&) = default;
    /// Moves error feedback here, in place of the residuals that this object referred to.
    error_feedback& operator=(error_feedback&&) = default;

    /// Bytes of storage that each rank needs for `gradient`, an element count or a tensor_list of whole gradients.
    template <topology Topology>
    static std::size_t storage_bytes(const Topology& ranks, const tensors_shape& gradient) {
        return sizes_of(ranks, gradient).all();
    }

    /// Makes the next reduction count all residuals as zeros.
    void reset() { uses_ = 0; }

    /// Number of reductions that have used the residuals since construction or the last `reset`. At 0, residuals count
    /// as zeros. To save residuals, save this number and the bytes of `residuals()`.
    std::uint64_t uses() const { return uses_; }
    /// Sets the number of reductions that have used the residuals. To restore saved residuals in an object made with
    /// equal arguments, also copy their bytes to `residuals()`.
    void restore(std::uint64_t uses) { uses_ = uses; }

    /// Memory of all residuals. It is complete once the work of the last reduction has ended.
    view<std::byte, Space> residuals() const { return storage_.subview(0, sizes_.all()); }

    /// Why the residuals do not fit the division `gradient` over `ranks`, as "expected ..., given ..."; empty if they
    /// fit.
    template <class Division, topology Topology>
    std::string problem(const Division& gradient, const Topology& ranks) const {
        const sizes wanted(ranks, gradient);
        if (sizes_ == wanted) return {};
        return "expected error feedback for " + wanted.text() + ", given one for " + sizes_.text() +
               (sizes_.places == wanted.places ? "" : " in another topology");
    }

    /// For collectives: a codec's `feedback` for the next reduction's messages along `Level`, which adds residuals and
    /// keeps new ones. `place` is the index of the first such message among the rank's messages along `Level`.
    template <int Level>
    feedback<storage_at<Level>> at(level_t<Level>, int place) const {
        return held<storage_at<Level>>(sizes_.offset(Level) + static_cast<std::size_t>(place) * sizes_.message[Level]);
    }
    /// For collectives: a codec's `feedback` for this rank's message in the all-gather phase of the next all-reduce.
    feedback<storage_at<Hops::count - 1>> all_gather() const {
        return held<storage_at<Hops::count - 1>>(sizes_.offset(Hops::count - 1));
    }
    /// For collectives: adds 1 to `uses()`. Call this once all work of a reduction is enqueued.
    void advance() { ++uses_; }

    /// Text with the number `uses()`, which the transport `checked` compares between ranks.
    short_text text() const { return short_text("feedback ").append(uses_); }

private:
    /// Sizes of the residuals in bytes, and the arguments that they depend on.
    struct sizes {
        std::size_t elements;
        std::size_t slice;
        message_place last;
        short_text list;
        int ranks;
        int groups;
        std::uint64_t places;                                  // digest of the topology: topology_digest
        detail::by_level<std::size_t, Hops::count> hop{};      // bytes of all residuals of a hop
        detail::by_level<std::size_t, Hops::count> message{};  // bytes of one shard's residuals for that hop

        template <topology Topology, class Division>
        sizes(const Topology& topology, const Division& gradient)
            : elements(gradient.elements()), slice(gradient.last_count()), last(gradient.last()), list(gradient.text()),
              ranks(topology.size()), groups(topology.groups()), places(topology_digest(topology)) {
            constexpr int levels = Topology::levels;
            static_assert(detail::reduce_scatters<Hops, levels> || detail::all_reduces<Hops, levels>,
                          "error_feedback: expected a quantizer for each level");
            for (std::size_t l = 0; l != message.size(); ++l) {
                message[l] = detail::stored_residuals<Hops, Storage>::formats[l].bytes_of(gradient);
                const int level = static_cast<int>(l);
                if (level < levels) {
                    hop[l] = reduction_slots(topology, level) * message[l];
                } else if (level == Hops::count - 1 && detail::all_reduces<Hops, levels>) {
                    hop[l] = message[l];
                }
            }
        }

        std::size_t offset(int level) const {
            std::size_t bytes = 0;
            for (int l = 0; l != level; ++l) bytes += hop[static_cast<std::size_t>(l)];
            return bytes;
        }
        std::size_t all() const { return offset(Hops::count); }
        std::string text() const {
            return (list == short_text() ? "" : list.str() + ", of ") + std::to_string(elements) + " elements over " +
                   std::to_string(ranks) + " ranks in " + std::to_string(groups) + " groups";
        }
        friend bool operator==(const sizes&, const sizes&) = default;
    };

    template <topology Topology>
    static sizes sizes_of(const Topology& ranks, const tensors_shape& gradient) {
        return gradient.divided({ranks.size()}, [&](const auto& whole) { return sizes(ranks, whole); });
    }

    template <quantizer Stored>
    feedback<Stored> held(std::size_t offset) const {
        std::byte* const at = storage_.data() + offset;
        return {Stored{}, uses_ == 0 ? nullptr : at, at, sizes_.slice, sizes_.last};
    }

    sizes sizes_;
    view<std::byte, Space> storage_;
    std::uint64_t uses_ = 0;
};

/// Argument of a reduction in place of `hops`: quantizers, and residuals of type error_feedback. On every hop, the
/// reduction adds the residuals of the last call and keeps new ones. Refers to the residuals.
template <class Hops, class Feedback>
class [[nodiscard]] with_error_feedback {
public:
    /// Copies `quantizers`, and refers to `residuals`, which must outlive this object.
    with_error_feedback(const Hops& quantizers, Feedback& residuals) : quantizers_(quantizers), residuals_(residuals) {
        static_assert(std::same_as<Hops, typename Feedback::hops_type>,
                      "error feedback must be for the same quantizers, that of the all-gather phase included");
    }

    /// Quantizers of the reduction.
    const Hops& quantizers() const { return quantizers_; }
    /// Residuals of the reduction, an error_feedback.
    Feedback& residuals() const { return residuals_; }

private:
    Hops quantizers_;
    Feedback& residuals_;
};

namespace detail {

/// Stands for error_feedback in a reduction without residuals: members find no problem, agree on nothing and keep
/// nothing.
struct no_error_feedback {
    template <class Division, class Topology>
    static std::string problem(const Division&, const Topology&) {
        return {};
    }
    static short_text text() { return {}; }
    template <int Level>
    static none at(level_t<Level>, int) {
        return {};
    }
    static none all_gather() { return {}; }
    static void advance() {}
};

/// True if a reduction with residuals of type `Memory` has error feedback.
template <class Memory>
inline constexpr bool feeds_back = !std::same_as<Memory, no_error_feedback>;

template <quantizer... Quantizers>
const hops<Quantizers...>& quantizers_of(const hops<Quantizers...>& by_level) {
    return by_level;
}
template <class Hops, class Feedback>
const Hops& quantizers_of(const with_error_feedback<Hops, Feedback>& fed_back) {
    return fed_back.quantizers();
}

template <quantizer... Quantizers>
no_error_feedback residuals_of(const hops<Quantizers...>&) {
    return {};
}
template <class Hops, class Feedback>
Feedback& residuals_of(const with_error_feedback<Hops, Feedback>& fed_back) {
    return fed_back.residuals();
}

/// Type of the `hops` that `Reduction` is, or contains if it is a with_error_feedback.
template <class Reduction>
using hops_of = std::remove_cvref_t<decltype(quantizers_of(std::declval<const Reduction&>()))>;

}  // namespace detail

/// Argument of a reduction that gives its quantizers: `hops`, or `with_error_feedback` to keep residuals, too.
template <class R>
concept reduction_hops = requires { typename detail::hops_of<R>; };

}  // namespace zeropp
