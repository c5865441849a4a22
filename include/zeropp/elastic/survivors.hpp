#pragma once
/// \file
/// Survivors of a failure: which survivor holds which elements, and which pieces survivors send to each other.

#include <zeropp/core/math.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// The survivors of a failure, and the topology before the failure, over which weights were stored.
template <topology Topology>
struct survivors_of {
    /// Topology before the failure, of all ranks of the communicator that was shrunk. For a secondary partition, the
    /// topology with groups that each hold one copy of the weights.
    Topology before;
    /// Ranks of the survivors in `before`, in increasing order, as `shrink` returns them.
    std::vector<int> ranks;

    /// Why a communicator of `size` ranks cannot have these survivors, as "expected ..., given ..."; empty if it can.
    std::string problem(int size) const {
        const bool increase = std::ranges::is_sorted(ranks, std::less_equal());
        const bool exist = ranks.empty() || (ranks.front() >= 0 && ranks.back() < before.size());
        if (increase && exist && static_cast<int>(ranks.size()) == size) return {};
        return "expected " + std::to_string(size) + " survivors in increasing order among " +
               std::to_string(before.size()) + " ranks before the failure, given " + detail::text_of(ranks);
    }
};

/// Options of recover_weights and redistribute_shards.
struct recovery_options {
    /// True to recover only the elements of dead ranks' shards, and to leave all other elements as they are. Then
    /// redistribute_shards brings the other elements, in full precision.
    bool lost_shards_only = false;
    /// Bytes of elements that move at a time. Bounds the workspace that a recovery allocates.
    std::size_t chunk_bytes = std::size_t{16} << 20;
};

namespace detail {

/// Division of an array of `elements` elements over `ranks` ranks, as a list of one segment.
inline std::vector<segment> segments_over(std::size_t elements, int ranks) {
    const partition part(elements, ranks);
    return {{part, part.slice_size(), {}}};
}
/// Division of each tensor of a list over `ranks` ranks.
template <class T, class Space>
std::vector<segment> segments_over(const tensor_list<T, Space>& tensors, int ranks) {
    return tensors.segments(ranks);
}

/// Arguments of a recovery, and the tensors' divisions before and after the failure.
template <topology Topology, class Tensors>
struct recovery_call {
    const survivors_of<Topology>& from;
    const Tensors& tensors;
    const recovery_options& options;
    std::vector<segment> before;
    std::vector<segment> after;

    recovery_call(const survivors_of<Topology>& survivors, const Tensors& all, const recovery_options& how, int size)
        : from(survivors), tensors(all), options(how), before(segments_over(all, survivors.before.size())),
          after(segments_over(all, size)) {}
};

/// One copy of all elements: its division into shards, and for each shard, the rank before the failure that holds it,
/// or -1.
struct held_copy {
    std::vector<segment> segments;
    std::vector<int> holders;
};

/// A piece: elements [begin, begin + count) of a tensor, from survivor `from` to `to`, at byte `offset` of the message
/// that `from` sends.
struct recovered_piece {
    std::size_t tensor;
    std::size_t begin;
    std::size_t count;
    int from;
    int to;
    std::size_t offset;
};

/// Elements [begin, end) of a tensor that no survivor holds.
struct lost_range {
    std::size_t tensor;
    std::size_t begin;
    std::size_t end;
};

/// Plan of a recovery: the pieces that all survivors send. Every survivor computes the same pieces, without
/// communication. Each element has one sender. Survivors that hold the same elements divide these among themselves.
class recovery_plan {
public:
    /// Plan of the recovery `call` on survivor `rank`, with elements of `element_bytes` bytes. `copies` are the copies
    /// that ranks held before the failure.
    template <class Call>
    recovery_plan(const Call& call, std::vector<held_copy> copies, int rank, std::size_t element_bytes)
        : before_(call.before), after_(call.after), copies_(std::move(copies)), rank_(rank),
          element_bytes_(element_bytes), lost_shards_only_(call.options.lost_shards_only),
          survivor_(static_cast<std::size_t>(call.from.before.size()), -1) {
        const std::vector<int>& ranks = call.from.ranks;
        for (std::size_t r = 0; r != ranks.size(); ++r) {
            survivor_[static_cast<std::size_t>(ranks[r])] = static_cast<int>(r);
        }
        holds_.assign(ranks.size(), true);
        const list_division whole(before_, before_.data(), 0, 0);
        const std::size_t shards = survivor_.size() - (lost_shards_only_ ? ranks.size() : 0);
        const std::size_t bytes = (whole.last().elements + whole.last_count()) * shards * element_bytes;
        const std::size_t chunks = ceil_div(bytes, std::max<std::size_t>(call.options.chunk_bytes, 1));
        chunks_ = list_chunks(whole, static_cast<int>(std::min<std::size_t>(chunks, 1 << 30)), 1);
    }
    recovery_plan(const recovery_plan&) = delete;
    recovery_plan& operator=(const recovery_plan&) = delete;

    std::size_t chunks() const { return chunks_.size(); }

    /// Makes the copies on survivor s count only if holds[s] is true.
    void count_copies_of(std::vector<bool> holds) { holds_ = std::move(holds); }

    /// Offset of this survivor's new shard in tensor t.
    std::size_t own_offset(std::size_t t) const { return after_[t].part.offset(rank_); }

    /// Calls use(recovered_piece) for each piece of a chunk, in one order on all ranks. Returns the bytes of the
    /// longest message that a rank sends; all ranks' messages have this size.
    template <class Use>
    std::size_t for_each_piece(std::size_t chunk, Use use) const {
        std::vector<std::size_t> used(holds_.size());
        for_each_run(chunks_[chunk],
                     [&](std::size_t t, std::size_t begin, std::size_t end, int to, const std::vector<int>& holders) {
                         if (holders.empty()) return;
                         for (std::size_t h = 0; begin < end; ++h) {
                             // Each destination begins with another holder, so that the first holder does not send all
                             // short runs.
                             const int source = holders[(h + static_cast<std::size_t>(to)) % holders.size()];
                             const std::size_t share = ceil_div(end - begin, holders.size() - h);
                             const std::size_t count = std::min(std::max(share, message_place::alignment), end - begin);
                             std::size_t& offset = used[static_cast<std::size_t>(source)];
                             use(recovered_piece{t, begin, count, source, to, offset});
                             offset += round_up(count * element_bytes_, workspace_alignment);
                             begin += count;
                         }
                     });
        return *std::ranges::max_element(used);
    }

    /// Elements to recover that no survivor holds, in ranges as long as possible.
    std::vector<lost_range> lost() const {
        std::vector<lost_range> ranges;
        for (std::size_t c = 0; c != chunks_.size(); ++c) {
            for_each_run(chunks_[c],
                         [&](std::size_t t, std::size_t begin, std::size_t end, int, const std::vector<int>& holders) {
                             if (holders.empty()) ranges.push_back({t, begin, end});
                         });
        }
        std::ranges::sort(ranges, {}, [](const lost_range& r) { return std::pair(r.tensor, r.begin); });
        std::vector<lost_range> joined;
        for (const lost_range& r : ranges) {
            if (!joined.empty() && joined.back().tensor == r.tensor && joined.back().end == r.begin) {
                joined.back().end = r.end;
            } else {
                joined.push_back(r);
            }
        }
        return joined;
    }

private:
    /// Calls use(tensor, begin, end, destination, holders) for each run of elements with one destination and the same
    /// holders.
    template <class Use>
    void for_each_run(const list_slices& chunk, Use use) const {
        std::vector<int> holders;
        for (std::size_t i = 0; i != chunk.sections(); ++i) {
            const section s = chunk.at(i);
            for (std::size_t owner = 0; owner != survivor_.size(); ++owner) {
                if (lost_shards_only_ && survivor_[owner] >= 0) continue;
                const int r = static_cast<int>(owner);
                std::size_t begin = s.part.offset(r) + s.begin;
                for (const std::size_t end = begin + s.size(r); begin < end;) {
                    const std::size_t t = chunk.tensor(i);
                    const partition& shards = after_[t].part;
                    const int to = static_cast<int>(begin / shards.slice_size());
                    const std::size_t stop = find_holders(t, begin, std::min(end, shards.offset(to + 1)), holders);
                    use(t, begin, stop, to, holders);
                    begin = stop;
                }
            }
        }
    }

    /// Sets `holders` to the survivors that hold element `begin` of tensor t. Returns the end of the run, up to `end`,
    /// of elements with these holders.
    std::size_t find_holders(std::size_t t, std::size_t begin, std::size_t end, std::vector<int>& holders) const {
        holders.clear();
        for (const held_copy& copy : copies_) {
            const partition& part = copy.segments[t].part;
            const std::size_t index = begin / part.slice_size();
            end = std::min(end, part.offset(static_cast<int>(index) + 1));
            const int holder = copy.holders[index];
            const int survivor = holder < 0 ? -1 : survivor_[static_cast<std::size_t>(holder)];
            if (survivor >= 0 && holds_[static_cast<std::size_t>(survivor)]) holders.push_back(survivor);
        }
        return end;
    }

    std::vector<segment> before_;
    std::vector<segment> after_;
    std::vector<held_copy> copies_;
    int rank_;
    std::size_t element_bytes_;
    bool lost_shards_only_;
    std::vector<int> survivor_;  // of each rank before the failure: its rank now, or -1
    std::vector<bool> holds_;    // of each survivor: true if its copies count
    list_chunks chunks_{list_division({}, nullptr, 0, 0), 1, 1};
};

/// Text such as "elements 3 to 9 of tensor 1, elements ...", with at most three ranges and the number of others.
[[gnu::cold]] inline std::string text_of(const std::vector<lost_range>& ranges) {
    constexpr std::size_t named = 3;
    std::string text;
    for (std::size_t i = 0; i != std::min(ranges.size(), named); ++i) {
        const lost_range& r = ranges[i];
        text += (text.empty() ? "elements " : ", elements ") + std::to_string(r.begin) + " to " +
                std::to_string(r.end - 1) + " of tensor " + std::to_string(r.tensor);
    }
    if (ranges.size() > named) text += " and " + std::to_string(ranges.size() - named) + " more ranges";
    return text;
}

}  // namespace detail

}  // namespace zeropp
