#pragma once
/// \file
/// The kernels that find the elements of a tensor that differ from another's, by their bits, write messages of them,
/// and put what such messages have where it belongs. The bytes are the host codec's.
///
/// A warp takes a run of groups. What lies in a message before a run's changes is summed up in two steps: each warp
/// counts those of its run, then one thread block adds up the runs.

#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/changes.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/topology/slices.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

inline constexpr int warp_lanes = 32;
inline constexpr int kernel_warps = kernel_threads / warp_lanes;

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % warp_lanes; }
__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / warp_lanes; }

/// A number of each lane, summed up: over the lanes before this one, and over all.
template <class N>
struct sum_over_warp {
    N before;
    N all;

    /// All lanes of the warp come here together.
    __device__ explicit sum_over_warp(N mine) : before(0), all(mine) {
#pragma unroll
        for (int distance = 1; distance != warp_lanes; distance *= 2) {
            const N other = __shfl_xor_sync(0xffffffffu, all, distance);
            if ((lane_of_warp() & distance) != 0) before += other;
            all += other;
        }
    }
};

/// Tiles of kernels whose warps take runs, all lanes of a warp the same one.
inline std::size_t tiles_of_runs(const changes_runs& runs) { return ceil_div(runs.count, std::size_t{kernel_warps}); }

/// use(r, first group, behind the last) for the runs that this warp takes.
template <class Use>
__device__ void for_each_run(const changes_runs& runs, std::size_t groups, Use use) {
    for (std::size_t r = blockIdx.x * std::size_t{kernel_warps} + static_cast<std::size_t>(warp_of_block());
         r < runs.count; r += gridDim.x * std::size_t{kernel_warps}) {
        const std::size_t first = r * runs.length;
        use(r, first, first + runs.length < groups ? first + runs.length : groups);
    }
}

/// The groups of a slot in memory, of which `Tensors` opens sections. To go from a group to the next one is cheap.
template <class Tensors, class Slices>
class group_cursor {
public:
    /// Of the section that the group is in.
    typename Tensors::cursor slice{};

    __device__ group_cursor(const Tensors& tensors, const Slices& where, int s)
        : tensors_(tensors), where_(where), s_(s) {}

    /// Goes to a group.
    __device__ void seek(std::size_t group) {
        if (group < first_ || group >= end_) {
            const std::size_t i = where_.section_of(group, changes_layout::group_size);
            const section of = where_.at(i);
            slice = tensors_.open(where_, of, i, s_);
            size_ = of.size(where_.rank(s_));
            first_ = of.place.blocks(changes_layout::group_size);
            end_ = where_.blocks_end(i, changes_layout::group_size);
        }
        begin_ = (group - first_) * changes_layout::group_size;
    }
    /// Where in its slice the group begins, and how many elements it has, or none.
    __device__ std::size_t begin() const { return begin_; }
    __device__ std::size_t elements() const {
        return begin_ >= size_                               ? 0
               : size_ - begin_ < changes_layout::group_size ? size_ - begin_
                                                             : changes_layout::group_size;
    }
    /// Elements of the slice.
    __device__ std::size_t size() const { return size_; }

private:
    const Tensors& tensors_;
    const Slices& where_;
    int s_;
    std::size_t first_ = 0;
    std::size_t end_ = 0;
    std::size_t size_ = 0;
    std::size_t begin_ = 0;
};

/// Which of eight elements differ, the first in the lowest bit.
template <class T>
__device__ unsigned changed_elements(const raw_granule<T>& a, const raw_granule<T>& b) {
    unsigned changed = 0;
    if constexpr (raw_granule<T>::element_bytes == 2) {
#pragma unroll
        for (int w = 0; w != granule_size / 2; ++w) {
            const std::uint32_t differ = a.data[w] ^ b.data[w];
            changed |= ((differ & 0xffffu) != 0 ? 1u : 0u) << (2 * w) | (differ > 0xffffu ? 1u : 0u) << (2 * w + 1);
        }
    } else {
        constexpr int words = static_cast<int>(sizeof(T) / sizeof(typename raw_granule<T>::word));
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            bool differ = false;
#pragma unroll
            for (int w = i * words; w != (i + 1) * words; ++w) differ |= a.data[w] != b.data[w];
            changed |= (differ ? 1u : 0u) << i;
        }
    }
    return changed;
}

/// How many of eight elements those are.
__device__ inline std::uint32_t number_of(unsigned changed) {
#if defined(__CUDA_ARCH__)
    return static_cast<std::uint32_t>(__popc(changed));
#else
    return static_cast<std::uint32_t>(__builtin_popcount(changed));
#endif
}

/// What a lane has of a group: eight elements, and which of them differ from the base's.
template <class Source>
struct changed_granule {
    typename Source::raw raw;
    unsigned changed;

    template <class Cursor>
    __device__ changed_granule(const Source& source, const Cursor& at) {
        const std::size_t granule = at.begin() / granule_size + static_cast<std::size_t>(lane_of_warp());
        const int valid = valid_elements(at.size(), granule);
        raw.of = source.tensor.fragment_part(at.slice.of, granule, valid);
        raw.less = source.base.fragment_part(at.slice.less, granule, valid);
        changed = changed_elements(raw.of, raw.less);
    }
};

/// numbers[1 + r] <- how many elements of the r-th run have changed.
template <class Source, class Slices>
struct count_changes_kernel {
    Source source;
    Slices where;
    std::size_t groups;
    changes_runs runs;
    std::uint64_t* numbers;

    static constexpr int resident_blocks = 4;

    __device__ void operator()() const {
        for_each_run(runs, groups, [&](std::size_t r, std::size_t first, std::size_t end) {
            group_cursor<Source, Slices> at(source, where, 0);
            std::uint64_t changes = 0;
            for (std::size_t group = first; group != end; ++group) {
                at.seek(group);
                changes += number_of(changed_granule<Source>(source, at).changed);
            }
            const sum_over_warp<std::uint64_t> of_run(changes);
            if (lane_of_warp() == 0) numbers[1 + r] = of_run.all;
        });
    }
};

/// The same of messages, by what they say.
struct sum_changes_kernel {
    const std::byte* messages;
    changes_layout layout;
    changes_runs runs;
    int slots;
    std::uint64_t* numbers;

    static constexpr int resident_blocks = 4;

    __device__ void operator()() const {
        for (int s = static_cast<int>(blockIdx.y); s < slots; s += static_cast<int>(gridDim.y)) {
            const auto* const counts =
                reinterpret_cast<const changes_layout::count*>(messages + static_cast<std::size_t>(s) * layout.bytes);
            std::uint64_t* const of_slot = numbers + static_cast<std::size_t>(s) * runs.numbers();
            for_each_run(runs, layout.groups, [&](std::size_t r, std::size_t first, std::size_t end) {
                std::uint64_t changes = 0;
                for (std::size_t g = first + static_cast<std::size_t>(lane_of_warp()); g < end; g += warp_lanes) {
                    changes += counts[g];
                }
                const sum_over_warp<std::uint64_t> of_run(changes);
                if (lane_of_warp() == 0) of_slot[1 + r] = of_run.all;
            });
        }
    }
};

/// Of the changes of each run, numbers[1 + r], makes how many lie before it; numbers[0] <- how many there are in all.
/// One thread block for each slot.
struct place_runs_kernel {
    changes_runs runs;
    int slots;
    std::uint64_t* numbers;

    static constexpr int resident_blocks = 1;

    __device__ void operator()() const {
        __shared__ std::uint64_t of_warps[kernel_warps];
        const std::size_t each = ceil_div(runs.count, std::size_t{kernel_threads});
        for (int s = static_cast<int>(blockIdx.y); s < slots; s += static_cast<int>(gridDim.y)) {
            std::uint64_t* const of_slot = numbers + static_cast<std::size_t>(s) * runs.numbers();
            std::uint64_t* const of_run = of_slot + 1;
            const std::size_t first = threadIdx.x * each;
            const std::size_t end = first + each < runs.count ? first + each : runs.count;
            std::uint64_t mine = 0;
            for (std::size_t r = first; r < end; ++r) mine += of_run[r];
            const sum_over_warp<std::uint64_t> of_warp(mine);
            __syncthreads();  // what was here before has been read
            if (lane_of_warp() == 0) of_warps[warp_of_block()] = of_warp.all;
            __syncthreads();
            std::uint64_t before = of_warp.before;
            for (int w = 0; w != warp_of_block(); ++w) before += of_warps[w];
            for (std::size_t r = first; r < end; ++r) {
                const std::uint64_t changes = of_run[r];
                of_run[r] = before;
                before += changes;
            }
            if (threadIdx.x == kernel_threads - 1) of_slot[0] = before;
        }
    }
};

/// Writes slot 0's message, by numbers that say where its runs begin.
template <class Source, class T, class Slices>
struct encode_changes_kernel {
    Source source;
    Slices where;
    changes_layout layout;
    changes_runs runs;
    const std::uint64_t* numbers;
    std::byte* message;

    static constexpr int resident_blocks = 4;

    __device__ void operator()() const {
        auto* const counts = reinterpret_cast<changes_layout::count*>(message);
        auto* const elements = reinterpret_cast<T*>(message + layout.elements_offset);
        std::byte* const places = message + layout.places_offset;
        for_each_run(runs, layout.groups, [&](std::size_t r, std::size_t first, std::size_t end) {
            group_cursor<Source, Slices> at(source, where, 0);
            std::size_t change = numbers[1 + r];
            for (std::size_t group = first; group != end; ++group) {
                at.seek(group);
                const changed_granule<Source> mine(source, at);
                const sum_over_warp<std::uint32_t> sum(number_of(mine.changed));
                const std::size_t room = change < layout.changes ? layout.changes - change : 0;
                if (lane_of_warp() == 0) {
                    counts[group] = static_cast<changes_layout::count>(sum.all < room ? sum.all : room);
                }
                if (mine.changed != 0) {
                    std::size_t own = change + sum.before;
#pragma unroll
                    for (int i = 0; i != granule_size; ++i) {
                        if ((mine.changed >> i & 1u) == 0 || own >= layout.changes) continue;
                        elements[own] = mine.raw.of.at(i);
                        places[own] = static_cast<std::byte>(lane_of_warp() * granule_size + i);
                        ++own;
                    }
                }
                change += sum.all;
            }
        });
        const std::size_t changes = numbers[0] < layout.changes ? numbers[0] : layout.changes;
        clear(message + layout.groups * sizeof *counts, elements);
        clear(reinterpret_cast<std::byte*>(elements + changes), places);
        clear(places + changes, message + layout.bytes);
    }

private:
    /// Zeros up to `end`, which is a multiple of 16, from all threads of the grid together.
    __device__ static void clear(std::byte* from, void* end) {
        const std::size_t thread = blockIdx.x * std::size_t{kernel_threads} + threadIdx.x;
        const auto misaligned = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(from) % 16);
        const std::size_t head = misaligned == 0 ? 0 : 16 - misaligned;
        if (thread < head) from[thread] = std::byte{0};
        auto* const words = reinterpret_cast<uint4*>(from + head);
        for (uint4* to = words + thread; to < end; to += gridDim.x * std::size_t{kernel_threads}) *to = uint4{};
    }
};

/// Tensors to write to.
template <class T, class Tensor>
struct changed_tensors {
    Tensor tensor;

    struct cursor {
        T* begin;
    };
    template <class Slices>
    __device__ cursor open(const Slices& where, const section& of, std::size_t i, int s) const {
        T* slice = into_global_memory(tensor_at(tensor, where.tensor(i)));
        // The offset of a slot without elements may lie beyond the tensor's end.
        return {of.size(where.rank(s)) == 0 ? slice : slice + of.offset(where.in_memory(s))};
    }
};

/// Writes the elements that messages have, by numbers that say where their runs begin.
template <class T, class Tensor, class Slices>
struct decode_changes_kernel {
    changed_tensors<T, Tensor> tensors;
    Slices where;
    const std::byte* messages;
    changes_layout layout;
    changes_runs runs;
    const std::uint64_t* numbers;

    static constexpr int resident_blocks = 4;

    __device__ void operator()() const {
        for (int s = static_cast<int>(blockIdx.y); s < where.slots; s += static_cast<int>(gridDim.y)) {
            const std::byte* const message = messages + static_cast<std::size_t>(s) * layout.bytes;
            const std::uint64_t* const of_slot = numbers + static_cast<std::size_t>(s) * runs.numbers();
            for_each_run(runs, layout.groups, [&](std::size_t r, std::size_t first, std::size_t end) {
                cursor at(tensors, where, s);
                std::uint64_t change = of_slot[1 + r];
                for (std::size_t group = first; group < end; group += warp_lanes) {
                    change += write(message, at, group, end, change);
                }
            });
        }
    }

private:
    using cursor = group_cursor<changed_tensors<T, Tensor>, Slices>;

    /// Of a group: where it is, how many elements it has, and how many changes there are up to its end.
    struct group_place {
        T* to;
        std::uint32_t elements;
        std::uint32_t changes_end;
    };

    /// Writes what a message has for the groups from `first` on, one for each lane of the warp, up to `end`; `change`
    /// is the number of the first of these changes. How many there are.
    __device__ std::uint32_t write(const std::byte* message, cursor& at, std::size_t first, std::size_t end,
                                   std::uint64_t change) const {
        __shared__ group_place of_block[kernel_warps][warp_lanes];
        group_place* const groups = of_block[warp_of_block()];
        const std::size_t own = first + static_cast<std::size_t>(lane_of_warp());
        group_place mine{nullptr, 0, 0};
        std::uint32_t changes = 0;
        if (own < end) {
            changes = reinterpret_cast<const changes_layout::count*>(message)[own];
            at.seek(own);
            mine.elements = static_cast<std::uint32_t>(at.elements());
            if (mine.elements != 0) mine.to = at.slice.begin + at.begin();
        }
        const sum_over_warp<std::uint32_t> sum(changes);
        mine.changes_end = sum.before + changes;
        groups[lane_of_warp()] = mine;
        __syncwarp();
        const auto* const elements = reinterpret_cast<const T*>(message + layout.elements_offset);
        const std::byte* const places = message + layout.places_offset;
        const std::uint64_t room = change < layout.changes ? layout.changes - change : 0;
        for (auto c = static_cast<std::uint32_t>(lane_of_warp()); c < sum.all && c < room; c += warp_lanes) {
            int group = 0;
#pragma unroll
            for (int half = warp_lanes / 2; half != 0; half /= 2) {
                if (groups[group + half - 1].changes_end <= c) group += half;
            }
            const group_place& of = groups[group];
            const auto place = static_cast<std::uint32_t>(places[change + c]);
            // Whatever arrives, nothing is written outside the group.
            if (place < of.elements) of.to[place] = elements[change + c];
        }
        __syncwarp();  // others still read what the next ones replace
        return sum.all;
    }
};

}  // namespace zeropp::detail
