#pragma once
/// \file
/// One message on the host: the sections of a slot, with what was lost of them before.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host_blocks.hpp>
#include <zeropp/codec/host_rotation.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/slices.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zeropp::detail {

template <class Byte>
Byte* message_at(Byte* messages, int slot, std::size_t bytes) {
    return messages + static_cast<std::size_t>(slot) * bytes;
}

/// The residuals of one section of a slot: of the elements from `begin` on of a tensor's slice.
template <class Feedback>
class section_residuals;

template <>
class section_residuals<no_feedback> {
public:
    static constexpr bool any = false;

    section_residuals(const no_feedback&, const section&, int) {}
};

template <quantizer Storage>
class section_residuals<feedback<Storage>> {
public:
    static constexpr bool any = true;
    /// Elements that are kept together.
    static constexpr auto block_size = static_cast<std::size_t>(Storage::block_size);

    section_residuals(const feedback<Storage>& f, const section& of, int slot)
        : feedback_(f), begin_(of.begin), held_(place(f, of, slot, f.held != nullptr ? f.held : f.kept)),
          kept_(place(f, of, slot, f.kept)) {}

    /// values[i] += the residual of element `begin` + i.
    template <class Size>
    void add(std::size_t begin, Size n, float* values) const {
        if (feedback_.held == nullptr) return;
        decode_elements(feedback_.storage, held_, begin_ + begin, n,
                        [&](std::size_t i, float x) { values[i] += product(x, feedback_.rescale); });
    }

    /// Keeps the new residuals, of `errors`. Changes `errors`.
    template <class Size>
    void keep(std::size_t begin, Size n, float* errors) const {
        for_each_piece<piece_size>(n, [&](std::size_t done, auto some) {
            const std::size_t first = begin_ + begin + done;
            float* const error = errors + done;
            float old[piece_size] = {};
            if (feedback_.held != nullptr) {
                decode_elements(feedback_.storage, held_, first, some,
                                [&](std::size_t i, float x) { old[i] = product(x, feedback_.rescale); });
            }
            for (std::size_t i = 0; i != some; ++i) error[i] = next_residual(old[i], error[i], feedback_.decay);
        });
        for_each_piece<stretch_blocks<Storage> * block_size>(n, [&](std::size_t done, auto some) {
            const std::size_t first = begin_ + begin + done;
            typename Storage::params params[stretch_blocks<Storage>];
            fit_blocks(feedback_.storage, errors + done, some, params);
            encode_blocks(feedback_.storage, params, errors + done, some, {first, false},
                          kept_.codes + code_bytes<Storage>(first));
            if constexpr (params_bytes<Storage> != 0) {
                std::memcpy(kept_.params + first / block_size * params_bytes<Storage>, params,
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
    coded_section held_;
    coded<std::byte> kept_;
};

/// What a message encodes of one section: its elements, rotated, with what was lost of them before. load(begin, n,
/// buffer) returns elements [begin, begin + n) as floats: where they are, or in `buffer`, but for all elements of the
/// section the same; twice where messages have a scale.
template <quantizer Q, class Load, class Residuals>
struct section_values {
    Load load;
    Residuals residuals;

    template <class Size>
    const float* operator()(std::size_t begin, Size n, float* buffer) const {
        const float* const values = load(begin, n, buffer);
        if constexpr (rotating_quantizer<Q> || Residuals::any) {
            if (values != buffer) std::memcpy(buffer, values, n * sizeof(float));
            rotate<Q>(buffer, n, false);
            if constexpr (Residuals::any) residuals.add(begin, n, buffer);
            return buffer;
        } else {
            return values;
        }
    }
};

/// A piece that ends with a block.
template <quantizer Q>
inline constexpr std::size_t whole_piece = std::max(static_cast<std::size_t>(Q::block_size), piece_size);

/// `so_far`, or the largest finite magnitude of `valid` values if that is more.
template <quantizer Q, class Values>
std::uint32_t largest_magnitude(const Values& values, std::size_t valid, std::uint32_t so_far) {
    constexpr std::size_t stretch = stretch_blocks<Q> * static_cast<std::size_t>(Q::block_size);
    float buffer[stretch];
    std::uint32_t absmax = so_far;
    for_each_piece_on_target<stretch, whole_piece<Q>>(valid, [&](std::size_t begin, auto n) {
        const float* const x = values(begin, n, buffer);
        for (std::size_t i = 0; i != n; ++i) absmax = take_magnitude(absmax, x[i]);
    });
    return absmax;
}

/// Encodes `valid` values, of elements from `what` on. `q` is the message's own.
template <quantizer Q, class Values>
void encode_section(const Q& q, const Values& values, std::size_t valid, encoded_elements what,
                    const coded<std::byte>& to) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t stretch = stretch_blocks<Q> * block_size;
    constexpr std::size_t piece = whole_piece<Q>;
    constexpr bool any_residuals = decltype(values.residuals)::any;
    if constexpr (any_residuals) {
        static_assert(decltype(values.residuals)::block_size <= std::max<std::size_t>(block_size, 1024),
                      "feedback: the blocks of Storage must not be larger than 1024 elements or the quantizer's");
    }
    float buffer[stretch];
    std::array<typename Q::params, stretch_blocks<Q>> params;
    for_each_piece_on_target<stretch, piece>(valid, [&](std::size_t begin, auto n) {
        // Loaded and fitted by pieces, which compilers merge into one pass: it reads the memory while it computes.
        const float* x = nullptr;
        for_each_piece<piece>(n, [&](std::size_t done, auto some) {
            const float* const prepared = values(begin + done, some, buffer + done);
            fit_blocks(q, prepared, some, params.data() + done / block_size);
            if (done == 0) x = prepared;
        });
        encode_blocks(q, params.data(), x, n, {what.index + begin, what.sums}, to.codes + code_bytes<Q>(begin));
        if constexpr (params_bytes<Q> != 0) {
            std::memcpy(to.params + begin / block_size * params_bytes<Q>, params.data(),
                        ceil_div(n, block_size) * params_bytes<Q>);
        }
        if constexpr (any_residuals) {
            decode_elements(q, to, begin, n, [&](std::size_t i, float decoded) { buffer[i] -= decoded; });
            values.residuals.keep(begin, n, buffer);
        }
    });
}

/// Calls f(s) for each slot of a run in the order in which slices lie in memory, where the ranks of a group follow each
/// other: to jump there costs half of the speed.
template <class Slices, class F>
void for_each_slot_in_memory(const Slices& where, const F& f) {
    for (int group = 0; group != where.order.groups; ++group) {
        for (int s = group; s < where.slots; s += where.order.groups) f(s);
    }
}

/// Encodes the slots of `where`; everything in a message without an element is zero. load_of(section, i, s) returns
/// what loads the elements of the i-th section in slot s. `sums` says that those are sums.
template <quantizer Q, class Slices, class LoadOf, class Residuals>
void encode_messages(const Q& q, const wire_layout<Q>& layout, const Slices& where, bool sums, LoadOf load_of,
                     const Residuals& residuals, std::byte* messages) {
    using kept = section_residuals<Residuals>;
    const auto values_of = [&](const section& of, std::size_t i, int s) {
        return section_values<Q, decltype(load_of(of, i, s)), kept>{load_of(of, i, s), kept(residuals, of, s)};
    };
    for (int s = 0; s != where.slots; ++s) {
        std::byte* const message = message_at(messages, s, layout.bytes);
        if constexpr (message_scaled_quantizer<Q>) {
            std::uint32_t absmax = 0;
            for (std::size_t i = 0; i != where.sections(); ++i) {
                const section of = where.at(i);
                if (const std::size_t valid = of.size(where.rank(s)); valid != 0) {
                    absmax = largest_magnitude<Q>(values_of(of, i, s), valid, absmax);
                }
            }
            std::memcpy(message + layout.scale_offset, &absmax, sizeof absmax);
        }
        std::fill(message + layout.scale_offset + message_scale_bytes<Q>, message + layout.bytes, std::byte{0});
    }
    const auto encode = [&](std::size_t i, int s) {
        const section of = where.at(i);
        const bool last = i + 1 == where.sections();
        std::byte* const message = message_at(messages, s, layout.bytes);
        const coded<std::byte> to(layout, of.place, message);
        const std::size_t valid = of.size(where.rank(s));
        if (valid != 0) {
            encode_section(quantizer_of(q, to), values_of(of, i, s), valid, {where.index(of, s), sums}, to);
        }
        // What this section has of the message, with the padding behind it.
        constexpr std::size_t block_size = wire_layout<Q>::block_size;
        const std::size_t codes_end = last ? layout.params_offset : code_bytes<Q>(where.elements_end(i));
        const std::size_t params_end =
            last ? layout.scale_offset : layout.params_offset + where.blocks_end(i, block_size) * params_bytes<Q>;
        const std::size_t blocks = ceil_div(valid, block_size);
        std::fill(to.codes + code_bytes<Q>(valid), message + codes_end, std::byte{0});
        std::fill(to.params + blocks * params_bytes<Q>, message + params_end, std::byte{0});
    };
    // In the order of what is read: slices of one tensor lie side by side in memory, sections of messages in each.
    if (sums) {
        for (int s = 0; s != where.slots; ++s) {
            for (std::size_t i = 0; i != where.sections(); ++i) encode(i, s);
        }
    } else {
        for (std::size_t i = 0; i != where.sections(); ++i) {
            for_each_slot_in_memory(where, [&](int s) { encode(i, s); });
        }
    }
}

}  // namespace zeropp::detail
