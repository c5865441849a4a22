#pragma once
/// \file
/// Sources of values for the kernels: a tensor, a difference of tensors, or (sum_source.cuh) a sum of messages.
///
/// A source loads several granules at a time, so that all their loads start before the first value is needed. Members:
///   `raw`               type of a granule as it is loaded
///   `fragment`          type of a granule with values, which `to_floats` returns any number of times
///   `fragments<Run>`    of (raw, k): makes the fragments k[0..Run) of `Run` loaded granules in a row
///   `rotation`          number of elements of the window in which values must be rotated back; 1 for none
///   `loaded_bytes`      number of bytes that are loaded for a granule
///   `loaded_words`      number of 32-bit registers of a loaded granule, until its fragment is made
///   `scratch_words`     number of further registers to make a fragment, or to read the values of one
///   `together`          number of granules in a row that one thread best fetches
///   `fetch_whole<Run>`  loads whole granules, `Run` in a row each time; all threads of a warp must call this, and
///                       `fragments`, together
///   `fragment_part`     loads the first `valid` elements of a granule as a fragment; the others are any values
///   `block_size`        number of elements of the messages' blocks; 1 for tensors
///   `sums`              true if values are sums of decoded messages. Only then, a source has the members below
///   `divisor`           number by which sums must be divided
///   `finish(x)`         divides sums, which must have been rotated back
///   `integers`          true if there is `has_ordinary_steps(raw)`. Where that is true, `fragments` may take a third
///                       argument: a power of two from 2^-8 to 1, which multiplies the sums
/// `open(where, of, i, s)` makes a `cursor`: data for all granules of section `of`, number i, in slot number s.
/// `moved(cursor, n)` is the rest of the section from granule number n on. `moves` is true if a kernel may use it.
/// n must begin a block, or have no bit in common with numbers of granules in the rest. Blocks before n and in the rest
/// then add up, whatever their size.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/layout/slices.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

/// Number of elements, 0 to 8, that granule number `granule` has among the first `size` elements of an array.
__device__ inline int valid_elements(std::size_t size, std::size_t granule) {
    const std::size_t begin = granule * granule_size;
    return begin >= size ? 0 : size - begin < granule_size ? static_cast<int>(size - begin) : granule_size;
}

/// Calls use(std::true_type()) if `aligned`, otherwise use(std::false_type()). The branch encloses many loads, so that
/// all start before words of an unaligned granule are joined.
template <class Use>
__device__ void once_aligned(bool aligned, Use use) {
    if (aligned) {
        use(std::true_type());
    } else {
        use(std::false_type());
    }
}

/// Source of the elements of a tensor, or of a list's tensors if `Tensor` is a tensor_table.
template <class T, class Tensor = const T*>
struct tensor_source {
    Tensor tensor;

    static constexpr bool sums = false;
    static constexpr int rotation = 1;
    static constexpr int together = 1;

    using raw = raw_granule<T>;
    /// Number of bytes that are loaded for a granule. An access narrower than 16 bytes counts as 16.
    static constexpr int loaded_bytes = 16 * raw::accesses;
    static constexpr int loaded_words = static_cast<int>(sizeof(raw) / 4);
    /// Number of registers to convert a granule. Halves with a NaN take a slow path, which needs 16 while other values
    /// stay in registers.
    static constexpr int scratch_words = std::is_same_v<T, half> ? 2 * granule_size : 0;

    /// Address of a section's first element, and true if it is on a 16-byte boundary.
    struct cursor {
        const T* slice;
        bool aligned;
    };

    template <class Slices>
    __device__ cursor open(const Slices& where, const section& of, std::size_t i, int s) const {
        const T* slice = into_global_memory(tensor_at(tensor, where.tensor(i)));
        // The offset of a slot without elements may lie beyond the tensor's end.
        if (of.size(where.rank(s)) != 0) slice += of.offset(where.in_memory(s));
        return {slice, reinterpret_cast<std::uintptr_t>(slice) % 16 == 0};
    }
    static constexpr bool moves = true;
    static constexpr int block_size = 1;

    __device__ static cursor moved(const cursor& s, std::size_t granules) {
        return {kept_address(s.slice + granules * granule_size), s.aligned};
    }
    /// Loads the whole granule number granule(n) of a section into r[n], for each n < N.
    template <int, std::size_t N, class Granule>
    __device__ void fetch_whole(const cursor& s, Granule granule, raw (&r)[N]) const {
        once_aligned(s.aligned, [&](auto aligned) {
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) {
                r[n] = load_whole_granule(s.slice + granule(n) * granule_size, aligned.value);
            }
        });
    }
    __device__ raw fragment_part(const cursor& s, std::size_t granule, int valid) const {
        const T* from = s.slice + granule * granule_size;
        return valid == granule_size ? load_whole_granule(from, s.aligned) : load_part_granule(from, valid);
    }
    using fragment = raw;
    template <int Run>
    __device__ static void fragments(const raw* r, fragment* k) {
#pragma unroll
        for (int i = 0; i != Run; ++i) k[i] = r[i];
    }
};

/// Source of differences of two tensor_sources, `tensor` - `base`. A value of `base` that is not finite counts as 0.
template <class Of, class Less>
struct difference_source {
    Of tensor;
    Less base;

    static constexpr bool sums = false;
    static constexpr int rotation = 1;
    static constexpr int together = 1;

    struct raw {
        typename Of::raw of;
        typename Less::raw less;
    };
    static constexpr int loaded_bytes = Of::loaded_bytes + Less::loaded_bytes;
    static constexpr int loaded_words = static_cast<int>(sizeof(raw) / 4);
    static constexpr int scratch_words = granule_size + Of::scratch_words;

    struct cursor {
        typename Of::cursor of;
        typename Less::cursor less;
    };

    template <class Slices>
    __device__ cursor open(const Slices& where, const section& from, std::size_t i, int s) const {
        return {tensor.open(where, from, i, s), base.open(where, from, i, s)};
    }
    static constexpr bool moves = true;
    static constexpr int block_size = 1;

    __device__ static cursor moved(const cursor& s, std::size_t granules) {
        return {Of::moved(s.of, granules), Less::moved(s.less, granules)};
    }
    /// Loads the whole granule number granule(n) of a section into r[n], for each n < N.
    template <int, std::size_t N, class Granule>
    __device__ void fetch_whole(const cursor& s, Granule granule, raw (&r)[N]) const {
        once_aligned(s.of.aligned && s.less.aligned, [&](auto aligned) {
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) {
                const std::size_t begin = granule(n) * granule_size;
                r[n].of = load_whole_granule(s.of.slice + begin, aligned.value);
                r[n].less = load_whole_granule(s.less.slice + begin, aligned.value);
            }
        });
    }
    using fragment = float_granule;
    template <int Run>
    __device__ static void fragments(const raw* r, fragment* k) {
#pragma unroll
        for (int n = 0; n != Run; ++n) k[n] = difference(r[n]);
    }
    __device__ fragment fragment_part(const cursor& s, std::size_t granule, int valid) const {
        return difference({tensor.fragment_part(s.of, granule, valid), base.fragment_part(s.less, granule, valid)});
    }

private:
    __device__ static fragment difference(const raw& r) {
        fragment f;
        float less[granule_size];
        r.of.to_floats(f.x);
        r.less.to_floats(less);
        drop_non_finite(less);
#pragma unroll
        for (int i = 0; i != granule_size; ++i) f.x[i] -= less[i];
        return f;
    }
};

}  // namespace zeropp::detail
