#pragma once
/// \file
/// Values that a message encodes: a source's values, rotated if the quantizer rotates, plus residuals.

#include <zeropp/codec/cuda/granule_codec.cuh>
#include <zeropp/codec/cuda/residuals.cuh>
#include <zeropp/codec/cuda/rotation.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/quantizer/abilities.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp::detail {

/// Eight floats.
struct float_granule {
    float x[granule_size];
};

/// Number of granules of `Values` (a `message_values`) that a thread loads at a time, `Run` in a row.
template <class Values, int Run>
inline constexpr std::size_t granules_at_once = Values::in_flight > Run ? Values::in_flight : Run;

/// Turns a source's granules into a quantizer's input. Fragments are the source's own if values need no change.
template <quantizer Q, class Source, class Residuals>
struct message_values {
    static constexpr bool changed = Source::sums || rotating_quantizer<Q> || Residuals::any;

    using fragment = std::conditional_t<changed, float_granule, typename Source::fragment>;

    /// Registers of a fragment, and whether it is the loaded granule, which then takes no others.
    static constexpr int fragment_words = static_cast<int>(sizeof(fragment) / 4);
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

    /// k[n] <- granule(n) of a section of `size` elements, all whole if `Whole`. Granules are spread over threads as
    /// for `rotate_granules`; all threads of the thread block must call this.
    template <bool Whole, int Lanes, int PerLane, int Run, class Granule, std::size_t N>
    __device__ static void fetch(const Source& source, const Residuals& residuals, const cursor& s, std::size_t size,
                                 Granule granule, fragment (&k)[N]) {
        if constexpr (changed) {
            float x[N][granule_size];
            load<Whole, Run, N>(source, s.source, size, granule,
                                [&](std::size_t n, const typename Source::fragment& f) { Source::values(f, x[n]); });
            rotate_granules<Source::rotation, Lanes, PerLane, Run>(x, true, [=](std::size_t n) {
                return Whole || is_in_whole_window<Source::rotation>(size, granule(n));
            });
            if constexpr (Source::sums) {
#pragma unroll
                for (std::size_t n = 0; n != N; ++n) source.finish(x[n]);
            }
            rotate_granules<rotation_size<Q>(), Lanes, PerLane, Run>(x, false, [=](std::size_t n) {
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
            load<Whole, Run, N>(source, s.source, size, granule,
                                [&](std::size_t n, const typename Source::fragment& f) { k[n] = f; });
        }
    }

    /// x <- the values of a fragment.
    __device__ static void of(const fragment& k, float (&x)[granule_size]) {
        if constexpr (changed) {
#pragma unroll
            for (int i = 0; i != granule_size; ++i) x[i] = k.x[i];
        } else {
            // Codes and parameters of a block with a NaN do not depend on the NaN's bits.
            Source::template values<!encodes_integers<Q>>(k, x);
        }
    }

private:
    /// Calls use(n, fragment of granule(n)) for N granules.
    template <bool Whole, int Run, std::size_t N, class Granule, class Use>
    __device__ static void load(const Source& source, const typename Source::cursor& s, std::size_t size,
                                Granule granule, Use use) {
        if constexpr (Whole) {
            constexpr std::size_t step =
                granules_at_once<message_values, Run> < N ? granules_at_once<message_values, Run> : N;
#pragma unroll
            for (std::size_t first = 0; first != N; first += step) {
                typename Source::raw raw[step];
                source.template fetch_whole<Run>(
                    s, [=](std::size_t n) { return granule(first + n); }, raw);
#pragma unroll
                for (std::size_t n = 0; n != step; n += Run) {
                    typename Source::fragment f[std::size_t{Run}];
                    source.template fragments<Run>(raw + n, granule(first + n), f);
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
