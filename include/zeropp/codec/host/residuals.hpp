#pragma once
/// \file
/// Error feedback on the host: adds previous residuals to a section's values, and stores new ones after encoding.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>

#include <cstddef>
#include <cstring>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// Residuals of one section of a slot, in messages of residuals of whole shards.
template <class Feedback>
class section_residuals;

/// Stands for a section without error feedback.
template <>
class section_residuals<none> {
public:
    static constexpr bool any = false;
    static constexpr std::size_t block_size = 1;

    section_residuals(const none&, const section&, int) {}
};

/// Old and new residuals of one section of a slot, encoded by `Storage`.
template <quantizer Storage>
class section_residuals<feedback<Storage>> {
public:
    static constexpr bool any = true;
    static constexpr auto block_size = static_cast<std::size_t>(Storage::block_size);

    section_residuals(const feedback<Storage>& f, const section& of, int slot)
        : feedback_(f), begin_(of.begin), previous_(place(f, of, slot, f.previous != nullptr ? f.previous : f.next)),
          next_(place(f, of, slot, f.next)) {}

    /// values[i] <- values[i] + previous residual of the section's element `begin` + i, for n elements.
    template <class Size>
    void add(std::size_t begin, Size n, float* values) const {
        if (feedback_.previous == nullptr) return;
        decode_elements(feedback_.storage, previous_, begin_ + begin, n,
                        [&](std::size_t i, float x) { values[i] += x; });
    }

    /// Replaces the quantization `errors` of the section's n elements from `begin` on by residuals, and stores these.
    /// Requires `begin` to begin a block of residuals.
    template <class Size>
    void keep(std::size_t begin, Size n, float* errors) const {
        for_each_piece<piece_size>(n, [&](std::size_t done, auto some) {
            const std::size_t first = begin_ + begin + done;
            float* const error = errors + done;
            float old[piece_size] = {};
            if (feedback_.previous != nullptr) {
                decode_elements(feedback_.storage, previous_, first, some, [&](std::size_t i, float x) { old[i] = x; });
            }
            for (std::size_t i = 0; i != some; ++i) error[i] = next_residual(old[i], error[i]);
        });
        for_each_piece<stretch_blocks<Storage> * block_size>(n, [&](std::size_t done, auto some) {
            const std::size_t first = begin_ + begin + done;
            typename Storage::params params[stretch_blocks<Storage>];
            fit_blocks(feedback_.storage, errors + done, some, params);
            refit_blocks(feedback_.storage, errors + done, some, params);
            encode_blocks(feedback_.storage, params, errors + done, some, {first, false},
                          next_.codes + code_bytes<Storage>(first));
            if constexpr (params_bytes<Storage> != 0) {
                std::memcpy(next_.params + first / block_size * params_bytes<Storage>, params,
                            ceil_div(some, block_size) * params_bytes<Storage>);
            }
        });
    }

private:
    template <class Byte>
    static coded<Byte> place(const feedback<Storage>& f, const section& of, int slot, Byte* residuals) {
        const wire_layout<Storage> layout(f.slice, f.last);
        return {layout, of.of_whole, residuals + static_cast<std::size_t>(slot) * layout.bytes};
    }

    feedback<Storage> feedback_;
    std::size_t begin_;
    coded_section previous_;
    coded<std::byte> next_;
};

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
