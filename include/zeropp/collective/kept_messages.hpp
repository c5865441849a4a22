#pragma once
/// \file
/// The base of secondary_partition, secondary_replica and shard_mirror: messages that a rank keeps between calls.

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zeropp {

namespace detail {
/// Identity of a tensor or a list of tensors: number of elements and, for a list, a text with the number of tensors and
/// a hash of their division.
struct tensors_identity {
    std::size_t elements;
    short_text list;

    template <class Division>
    explicit tensors_identity(const Division& d) : elements(d.elements()), list(d.text()) {}

    /// Why `given` are other tensors, as "expected ..., given ..."; empty if they are not.
    std::string problem(const tensors_identity& given) const {
        if (given == *this) return {};
        return "expected " + text() + ", given " +
               (list == given.list ? "one of " + std::to_string(given.elements) : given.text());
    }
    friend bool operator==(const tensors_identity&, const tensors_identity&) = default;

private:
    std::string text() const {
        return (list == short_text() ? "a tensor" : list.str()) + " of " + std::to_string(elements) + " elements";
    }
};
}  // namespace detail

/// Shards of tensors that a rank keeps between calls, as messages of the quantizer `Stored` in the caller's storage.
/// Other ranks get these shards as messages of the quantizer `Moved`. Stored messages have a version, any number that
/// changes whenever the tensors do.
template <quantizer Stored, class Space, quantizer Moved = Stored>
class kept_messages {
public:
    using space = Space;
    using stored_quantizer = Stored;
    using quantizer_type = Moved;

    /// Forgets the version. To use the messages is then an error, until a call stores new ones. All ranks must call
    /// this.
    void invalidate() { version_.reset(); }

    /// The quantizer of messages to other ranks.
    const Moved& stored_as() const { return quantizer_; }
    /// Number of elements of all tensors, undivided.
    std::size_t elements() const { return of_.elements; }
    /// Version of the stored messages; none before the first call that stores, and after `invalidate`.
    std::optional<std::uint64_t> version() const { return version_; }

    // Members for collectives. For `whole`, the type of the operand, array or list, selects the overload.

    /// The ranks over which the tensors are divided.
    const sharing_ranks& over() const { return over_; }
    /// Memory of all stored messages.
    view<std::byte, Space> storage() const { return storage_; }
    /// Address of stored message i.
    std::byte* message(int i = 0) const { return storage_.data() + static_cast<std::size_t>(i) * message_bytes_; }
    /// Bytes of each stored message.
    std::size_t message_bytes() const { return message_bytes_; }
    /// Sets the version of the stored messages.
    void stamp(std::optional<std::uint64_t> version) { version_ = version; }

    /// Why tensors of the shape `tensors` are not the stored tensors, as "expected ..., given ..."; empty if they are.
    std::string shape_problem(const tensors_shape& tensors) const {
        if (std::string problem = tensors.problem(over_); !problem.empty()) return problem;
        return of_.problem(tensors.divided(over_, [](const auto& d) { return detail::tensors_identity(d); }));
    }
    /// Why `full` are not the stored tensors, as "expected ..., given ..."; empty if they are. Tensors that are divided
    /// over a group's ranks must have no gaps between shards.
    template <class Operand>
    std::string tensors_problem(const Operand& full) const {
        if (!over_.of_group || !full.has_gaps()) return shape_problem(full.shape());
        return "expected tensors without gaps between shards, given a list with gaps";
    }

    /// Division of the stored tensor into shards. An array as operand selects this overload.
    template <class U>
    detail::tensor_division whole(const detail::array_operand<U, Space>&) const {
        return {of_.elements, over_.count};
    }
    /// Division of the stored list's tensors into shards. A list as operand selects this overload; requires
    /// `keep_table` before.
    template <class U>
    detail::list_division whole(const detail::list_operand<U, Space>&) const {
        return {segments_, resident_segments(), of_.elements, digest_};
    }

    /// Why `shard` and the stored tensors are not both an array or both a list, as "expected ..., given ..."; empty if
    /// they are. An empty shard is checked, too: the shard's kind decides how messages are divided.
    template <class Operand>
    std::string kind_problem(const Operand& shard) const {
        return of_.problem(detail::tensors_identity(whole(shard)));
    }

protected:
    /// Why `shard` cannot be the shard of rank `owner`, as "expected ..., given ..."; empty if it can. The text calls
    /// the stored messages `name`, such as "mirror".
    template <class Operand>
    std::string shard_problem(const Operand& shard, int owner, const std::string& name) const {
        if (std::string problem = kind_problem(shard); !problem.empty()) return problem;
        if (shard.overlaps(storage_)) return "expected a shard apart from the " + name + ", given one that overlaps it";
        return shard.shard_problem(whole(shard), owner);
    }

    /// Refers to `storage`, for `count` messages of `tensors`, an element count or a tensor_list. Throws
    /// precondition_error in the name of `where` unless the ranks `over` can share the tensors, and `storage` is large
    /// enough and aligned to 16 bytes.
    template <class Storage>
    kept_messages(const char* where, const Moved& q, const tensors_shape& tensors, const sharing_ranks& over,
                  std::size_t count, Storage&& storage)
        : quantizer_(q), of_(tensors.divided(over, [](const auto& d) { return detail::tensors_identity(d); })),
          over_(over), storage_(as_view<Space>(storage)), message_bytes_(bytes_of(tensors, over)), table_(0) {
        std::string problem = tensors.problem(over);
        if (problem.empty()) problem = workspace_problem(storage_, count * message_bytes_);
        if (!problem.empty()) throw precondition_error(std::string(where) + ": " + problem);
    }

    /// Bytes of one stored message of `tensors`, divided over the ranks `over`.
    static std::size_t bytes_of(const tensors_shape& tensors, const sharing_ranks& over) {
        return tensors.divided(over, [](const auto& whole) { return format_of<Stored>.bytes_of(whole); });
    }

    /// If `tensors` is a list, keeps a table of its segments, one for each tensor, in host memory and in `Space`. In
    /// `Space`, element addresses follow: for each start address in `first`, one address for each tensor. Allocates;
    /// blocks in device_space.
    template <class T = float>
    void keep_table(const tensors_shape& tensors, std::initializer_list<T*> first = {}) {
        tensors.divided(over_, [&]<class Division>(const Division& whole) {
            if constexpr (std::same_as<Division, detail::list_division>) {
                segments_.assign(whole.segments().begin(), whole.segments().end());
                digest_ = whole.digest();
            }
        });
        if (segments_.empty()) return;
        std::vector<T*> addresses;
        for (T* const elements : first) {
            for (const segment& s : segments_) addresses.push_back(elements + s.place.elements);
        }
        table_ = detail::resident<Space>(detail::joined_bytes(std::span(segments_), std::span(addresses)));
    }
    /// Addresses in `Space`, one for each tensor, that `keep_table` has kept for its start address of index i.
    template <class T>
    tensor_table<T> kept_table(std::size_t i) const {
        return {reinterpret_cast<T* const*>(resident_segments() + segments_.size()) + i * segments_.size()};
    }

private:
    const segment* resident_segments() const { return reinterpret_cast<const segment*>(table_.view().data()); }

    Moved quantizer_;
    detail::tensors_identity of_;
    sharing_ranks over_;
    view<std::byte, Space> storage_;
    std::size_t message_bytes_;
    std::vector<segment> segments_;  // one for each tensor of a list; empty for an array
    std::uint64_t digest_ = 0;
    workspace<Space> table_;
    std::optional<std::uint64_t> version_;
};

namespace detail {
/// A secondary_partition, a secondary_replica or a shard_mirror in `Space`, from which survivors of a failure recover.
template <class S, class Space>
concept copies_in =
    std::derived_from<S, kept_messages<typename S::stored_quantizer, Space, typename S::quantizer_type>>;
/// A secondary_partition or a secondary_replica in `Space`, from which a group's ranks gather whole tensors.
template <class S, class Space>
concept secondary_in = copies_in<S, Space> && requires(const S& secondary) { secondary.slots(); };
}  // namespace detail

}  // namespace zeropp
