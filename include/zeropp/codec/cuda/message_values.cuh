#pragma once
/// \file
/// What a message encodes: the values of a source, in the domain of its quantizer, with what was lost of them before.

#include <zeropp/codec/cuda/residuals.cuh>
#include <zeropp/codec/cuda/rotation.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/topology/slices.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp::detail {

/// Eight floats.
struct float_granule {
    float x[granule_size];
};

/// Granules on their way from a source to a quantizer; as the source keeps them where nothing happens to them.
template <quantizer Q, class Source, class Residuals>
struct message_values {
    /// Whether the source has something to do to values that are rotated back.
    static constexpr bool finished = requires(const Source& s, float_granule& g) { s.finish(g.x); };
    static constexpr bool changed = Source::rotation > 1 || finished || rotating_quantizer<Q> || Residuals::any;

    using kept = std::conditional_t<changed, float_granule, typename Source::kept>;

    /// Registers of a granule's values, whether what is loaded takes others meanwhile, and how many granules a thread
    /// has under way.
    static constexpr int kept_words = static_cast<int>(sizeof(kept) / 4);
    static constexpr bool kept_as_loaded = std::is_same_v<kept, typename Source::raw>;
    static constexpr int at_once =
        granules_at_once(Source::loaded_bytes + Residuals::loaded_bytes,
                         Source::loaded_words + Residuals::loaded_words + (kept_as_loaded ? 0 : kept_words));

    struct slot {
        typename Source::slot source;
        typename Residuals::slot residuals;
    };

    template <class Slices>
    __device__ static slot open(const Source& source, const Residuals& residuals, const Slices& where,
                                const section& of, std::size_t i, int s) {
        return {source.open(where, of, i, s), residuals.open(of, s)};
    }

    /// k[n] <- granule(n), of a slot of `size` elements, all of which exist if `Whole`. Granules are spread over
    /// threads as `rotate_granules` wants them; all threads of the block must come here.
    template <bool Whole, int Lanes, int Share, class Granule, std::size_t N>
    __device__ static void fetch(const Source& source, const Residuals& residuals, const slot& s, std::size_t size,
                                 Granule granule, kept (&k)[N]) {
        if constexpr (changed) {
            float x[N][granule_size];
            load<Whole>(
                source, s.source, size, granule,
                [&](std::size_t n, const typename Source::raw& raw) { source.values(raw, granule(n), x[n]); },
                std::integral_constant<std::size_t, N>());
            rotate_granules<Source::rotation, Lanes, Share>(x, true, [=](std::size_t n) {
                return Whole || is_in_whole_window<Source::rotation>(size, granule(n));
            });
            if constexpr (finished) {
#pragma unroll
                for (std::size_t n = 0; n != N; ++n) source.finish(x[n]);
            }
            rotate_granules<rotation_size<Q>(), Lanes, Share>(x, false, [=](std::size_t n) {
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
            load<Whole>(
                source, s.source, size, granule,
                [&](std::size_t n, const typename Source::raw& raw) { k[n] = source.keep(raw, granule(n)); },
                std::integral_constant<std::size_t, N>());
        }
    }

    /// x <- the values of what was kept.
    __device__ static void of(const kept& k, float (&x)[granule_size]) {
        if constexpr (changed) {
#pragma unroll
            for (int i = 0; i != granule_size; ++i) x[i] = k.x[i];
        } else {
            Source::values(k, x);
        }
    }

private:
    /// use(n, raw) for granule(n), n below N.
    template <bool Whole, class Granule, class Use, std::size_t N>
    __device__ static void load(const Source& source, const typename Source::slot& s, std::size_t size, Granule granule,
                                Use use, std::integral_constant<std::size_t, N>) {
        if constexpr (Whole) {
            typename Source::raw raw[N];
            source.fetch_whole(s, granule, raw);
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) use(n, raw[n]);
        } else {
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) {
                use(n, source.fetch_part(s, granule(n), valid_elements(size, granule(n))));
            }
        }
    }
};

}  // namespace zeropp::detail
