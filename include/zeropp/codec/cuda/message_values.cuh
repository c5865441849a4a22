#pragma once
/// \file
/// Values that a message encodes: a source's values, rotated if the quantizer rotates, plus residuals. Kernels add old
/// residuals when they load a granule, and store new residuals after they encode it.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/codes.cuh>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/granule_codec.cuh>
#include <zeropp/codec/cuda/rotation.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

/// Residuals (quantization errors of earlier calls) of consecutive slots. `Feedback` is a `feedback`, or `none`.
template <class Feedback>
struct kernel_residuals;

template <>
struct kernel_residuals<none> {
    template <quantizer Q>
    static constexpr bool fit_blocks_of = true;
    static constexpr bool any = false;
    static constexpr int loaded_bytes = 0;
    static constexpr int loaded_words = 0;
    static constexpr int scratch_words = 0;
    struct stats {};
    struct cursor {};

    __device__ static cursor open(const section&, int) { return {}; }
};

/// Residuals that a `feedback` keeps as messages of the quantizer `Storage`. New residuals may lie where the old ones
/// are: each thread reads a granule before it writes that granule.
template <quantizer Storage>
struct kernel_residuals<feedback<Storage>> {
    static_assert(!rotating_quantizer<Storage> && !refitting_quantizer<Storage> && !stochastic_quantizer<Storage> &&
                      !ternary_quantizer<Storage>,
                  "residuals on GPUs are stored by a quantizer of single elements");

    feedback<Storage> state;

    /// True if `Storage` has no parameters, or blocks as large as blocks of `Q`: a team then shares a block of both.
    template <quantizer Q>
    static constexpr bool fit_blocks_of = params_bytes<Storage> == 0 || Storage::block_size == Q::block_size;
    static constexpr bool any = true;
    static constexpr int loaded_bytes = Storage::code_bits;
    static constexpr int loaded_words = static_cast<int>(sizeof(packed_codes<Storage::code_bits>) / 4);
    static constexpr int scratch_words = granule_size;
    static constexpr bool has_params = params_bytes<Storage> != 0;
    using stats = typename Storage::stats;

    /// Where the residuals of one section of a message lie.
    struct cursor {
        const std::byte* previous;  // old residuals: first code of the section's tensor; null if all are zero
        std::byte* next;            // new residuals: address for the first code of the section's tensor
        std::size_t params_offset;  // bytes from the tensor's first code to the tensor's parameters
        std::size_t first_granule;  // number of granules of the tensor's shard before the section
    };

    __device__ cursor open(const section& of, int s) const {
        const wire_layout<Storage> layout(state.slice, state.last);
        const std::size_t codes = layout.codes_at(of.of_whole);
        const std::size_t offset = static_cast<std::size_t>(s) * layout.bytes + codes;
        return {state.previous == nullptr ? nullptr : state.previous + offset, state.next + offset,
                layout.params_at(of.of_whole) - codes, of.begin / granule_size};
    }

    /// Adds the old residuals of a granule with `valid` elements to the values `x`.
    __device__ void add(const cursor& s, std::size_t granule, int valid, float (&x)[granule_size]) const {
        if (s.previous == nullptr) return;
        float old[granule_size];
        load(s, granule, valid, old);
#pragma unroll
        for (int i = 0; i != granule_size; ++i) x[i] += old[i];
    }

    /// Turns `error`, the quantization errors of a granule, into new residuals. An error that is not finite becomes the
    /// old residual, or 0 if neither is finite.
    __device__ void mix(const cursor& s, std::size_t granule, int valid, float (&error)[granule_size]) const {
        float old[granule_size];
        load(s, granule, valid, old);
#pragma unroll
        for (int i = 0; i != granule_size; ++i) error[i] = next_residual(old[i], error[i]);
    }

    __device__ typename Storage::params fit(const stats& of_errors) const { return state.storage.fit(of_errors); }

    __device__ void store(const cursor& s, std::size_t granule, int valid, const typename Storage::params& params,
                          const float (&residual)[granule_size]) const {
        if (valid == 0) return;
        std::uint32_t codes[granule_size];
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            codes[i] = state.storage.encode(residual[i], params);
            if (i >= valid) codes[i] = 0;
        }
        constexpr int bits = Storage::code_bits;
        store_codes<bits>(s.next + (s.first_granule + granule) * bits, packed_codes<bits>::of(codes), valid);
    }

    __device__ void store_params(const cursor& s, std::size_t granule, const typename Storage::params& params) const {
        if constexpr (params_bytes<Storage> != 0) {
            *reinterpret_cast<typename Storage::params*>(s.next + params_place(s, granule)) = params;
        }
    }

private:
    /// Offset in bytes, from the first code of the tensor's residuals, of the parameters for the section's granule.
    __device__ static std::size_t params_place(const cursor& s, std::size_t granule) {
        constexpr std::size_t block_granules = Storage::block_size / granule_size;
        return s.params_offset + (s.first_granule + granule) / block_granules * params_bytes<Storage>;
    }

    /// Loads the old residuals of a granule into `old`; zeros if there are none.
    __device__ void load(const cursor& s, std::size_t granule, int valid, float (&old)[granule_size]) const {
        constexpr int bits = Storage::code_bits;
        packed_codes<bits> codes{};
        typename Storage::params params{};
        const bool any_previous = s.previous != nullptr && valid != 0;
        if (any_previous) {
            codes = load_codes<bits, false>(s.previous + (s.first_granule + granule) * bits, valid);
            if constexpr (params_bytes<Storage> != 0) {
                params = *reinterpret_cast<const typename Storage::params*>(s.previous + params_place(s, granule));
            }
        }
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            old[i] = any_previous ? state.storage.decode(codes.at(i), params) : 0.0f;
        }
    }
};

/// Number of granules that a thread loads at a time, `Run` in a row. `Values` is a `message_values`.
template <class Values, int Run>
inline constexpr std::size_t granules_at_once = Values::in_flight > Run ? Values::in_flight : Run;

/// Loads granules of a source as the values that `Q` encodes: sums divided, values rotated, residuals added. Fragments
/// are the fragments of `Source` if none of this applies.
template <quantizer Q, class Source, class Residuals>
struct message_values {
    static constexpr bool changed = Source::sums || rotating_quantizer<Q> || Residuals::any;

    using fragment = std::conditional_t<changed, float_granule, typename Source::fragment>;

    /// Number of 32-bit registers of a fragment: a granule with values to encode (sources.cuh).
    static constexpr int fragment_words = static_cast<int>(sizeof(fragment) / 4);
    /// True if a fragment is the granule as it is loaded, and so needs no further registers.
    static constexpr bool fragment_is_raw = std::is_same_v<fragment, typename Source::raw>;

    /// Number of granules that a thread loads at a time.
    static constexpr int in_flight =
        granules_in_flight(Source::loaded_bytes + Residuals::loaded_bytes,
                           Source::loaded_words + Residuals::loaded_words + (fragment_is_raw ? 0 : fragment_words));

    struct cursor {
        typename Source::cursor source;
        typename Residuals::cursor residuals;
    };

    template <class Slices>
    __device__ static cursor open(const Source& source, const Residuals& residuals, const Slices& where,
                                  const section& of, std::size_t i, int s) {
        return {source.open(where, of, i, s), residuals.open(of, s)};
    }

    /// Loads granule(n) of a section of `size` elements into k[n], as values to encode, for each n < N. `Whole`: all
    /// granules have eight elements, and fetch_whole(granule, raw) loads them. Unless `Scaled`, rotations for `Q` lack
    /// their factor. Threads must divide granules as in `rotate_granules`. All threads of the thread block must call
    /// this together.
    template <bool Whole, bool Scaled, int Lanes, int PerLane, int Run, class Granule, std::size_t N, class FetchWhole>
    __device__ static void fetch(const Source& source, const Residuals& residuals, const cursor& s, std::size_t size,
                                 Granule granule, fragment (&k)[N], FetchWhole fetch_whole) {
        if constexpr (changed) {
            float x[N][granule_size];
            load<Whole, Run, N>(source, s.source, size, granule, fetch_whole,
                                [&](std::size_t n, const typename Source::fragment& f) { f.to_floats(x[n]); });
            rotate_granules<Source::rotation, Lanes, PerLane, Run>(x, true, [=](std::size_t n) {
                return Whole || is_in_whole_window<Source::rotation>(size, granule(n));
            });
            if constexpr (Source::sums) {
                if (source.divisor != 1.0f) {
#pragma unroll
                    for (std::size_t n = 0; n != N; ++n) source.finish(x[n]);
                }
            }
            rotate_granules<rotation_size<Q>(), Lanes, PerLane, Run, Scaled>(x, false, [=](std::size_t n) {
                return Whole || is_in_whole_window<rotation_size<Q>()>(size, granule(n));
            });
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) {
                if constexpr (Residuals::any) {
                    residuals.add(s.residuals, granule(n), Whole ? granule_size : valid_elements(size, granule(n)),
                                  x[n]);
                }
#pragma unroll
                for (int i = 0; i != granule_size; ++i) k[n].x[i] = x[n][i];
            }
        } else {
            load<Whole, Run, N>(source, s.source, size, granule, fetch_whole,
                                [&](std::size_t n, const typename Source::fragment& f) { k[n] = f; });
        }
    }

    /// Converts a fragment to the floats `x`. For integer codes, a NaN may change its bits: codes and parameters of its
    /// block do not depend on them.
    __device__ static void of(const fragment& k, float (&x)[granule_size]) {
        k.template to_floats<!encodes_integers<Q>>(x);
    }

    /// Calls use(x) for the first `valid` values of a granule.
    template <class Use>
    __device__ static void for_each(const fragment& f, int valid, Use use) {
        float x[granule_size];
        of(f, x);
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            if (i < valid) use(x[i]);
        }
    }

private:
    /// Loads N granules of a section, and calls use(n, fragment) for each granule(n).
    template <bool Whole, int Run, std::size_t N, class Granule, class FetchWhole, class Use>
    __device__ static void load(const Source& source, const typename Source::cursor& s, std::size_t size,
                                Granule granule, FetchWhole fetch_whole, Use use) {
        if constexpr (Whole) {
            constexpr std::size_t step =
                granules_at_once<message_values, Run> < N ? granules_at_once<message_values, Run> : N;
#pragma unroll
            for (std::size_t first = 0; first != N; first += step) {
                typename Source::raw raw[step];
                fetch_whole([=](std::size_t n) { return granule(first + n); }, raw);
#pragma unroll
                for (std::size_t n = 0; n != step; n += Run) {
                    typename Source::fragment f[std::size_t{Run}];
                    source.template fragments<Run>(raw + n, f);
#pragma unroll
                    for (std::size_t i = 0; i != Run; ++i) use(first + n + i, f[i]);
                }
            }
        } else {
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) {
                use(n, source.fragment_part(s, granule(n), valid_elements(size, granule(n))));
            }
        }
    }
};

}  // namespace zeropp::detail
