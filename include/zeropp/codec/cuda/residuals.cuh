#pragma once
/// \file
/// Error feedback in the kernels: adds previous residuals when a granule is fetched, and stores new ones after it is
/// encoded.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/cuda/codes.cuh>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/abilities.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

/// Residuals of consecutive slots.
template <class Feedback>
struct kernel_residuals;

template <>
struct kernel_residuals<no_feedback> {
    static constexpr bool any = false;
    static constexpr int loaded_bytes = 0;
    static constexpr int loaded_words = 0;
    static constexpr int scratch_words = 0;
    struct stats {};
    struct cursor {};

    __device__ static cursor open(const section&, int) { return {}; }
};

/// `previous` and `next` may be the same memory: each granule is read by the thread that writes it, before it does.
template <quantizer Storage>
struct kernel_residuals<feedback<Storage>> {
    static_assert(!rotating_quantizer<Storage> && !searching_quantizer<Storage> && !stochastic_quantizer<Storage> &&
                      !message_scaled_quantizer<Storage> && !positional_quantizer<Storage>,
                  "residuals on GPUs are stored by a quantizer of single elements");

    feedback<Storage> state;

    static constexpr bool any = true;
    static constexpr int loaded_bytes = Storage::code_bits;
    static constexpr int loaded_words = static_cast<int>(sizeof(packed_codes<Storage::code_bits>) / 4);
    static constexpr int scratch_words = granule_size;
    static constexpr bool has_params = params_bytes<Storage> != 0;
    using stats = typename Storage::stats;

    /// Residuals of a section: previous and next codes of its tensor, bytes from these to parameters, first granule.
    struct cursor {
        const std::byte* previous;
        std::byte* next;
        std::size_t params_offset;
        std::size_t first_granule;
    };

    __device__ cursor open(const section& of, int s) const {
        const wire_layout<Storage> layout(state.slice, state.last);
        const std::size_t codes = layout.codes_at(of.of_whole);
        const std::size_t offset = static_cast<std::size_t>(s) * layout.bytes + codes;
        return {state.previous == nullptr ? nullptr : state.previous + offset, state.next + offset,
                layout.params_at(of.of_whole) - codes, of.begin / granule_size};
    }

    /// x <- x + previous residuals of a granule with `valid` elements.
    __device__ void add(const cursor& s, std::size_t granule, int valid, float (&x)[granule_size]) const {
        if (s.previous == nullptr) return;
        float old[granule_size];
        load(s, granule, valid, old);
#pragma unroll
        for (int i = 0; i != granule_size; ++i) x[i] += old[i];
    }

    /// error <- new residuals, made of quantization errors.
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
    /// Offset of the parameters of a granule's block, in bytes from `previous` or `next`.
    __device__ static std::size_t params_place(const cursor& s, std::size_t granule) {
        constexpr std::size_t block_granules = Storage::block_size / granule_size;
        return s.params_offset + (s.first_granule + granule) / block_granules * params_bytes<Storage>;
    }

    /// old <- previous residuals of a granule; zeros if there are none.
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

/// True if residuals have no parameters, or blocks as large as Q's, so that a team shares a block of both.
template <quantizer Q, class Feedback>
struct storage_fits : std::true_type {};
template <quantizer Q, quantizer Storage>
struct storage_fits<Q, feedback<Storage>>
    : std::bool_constant<params_bytes<Storage> == 0 || Storage::block_size == Q::block_size> {};

}  // namespace zeropp::detail
