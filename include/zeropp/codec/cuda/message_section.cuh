#pragma once
/// \file
/// A section of a message that a kernel writes: sizes, addresses, and stores of codes and parameters.

#include <zeropp/codec/cuda/codes.cuh>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/instructions.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <cstring>

namespace zeropp::detail {

/// One section of a message in the format `Q`: the elements of one tensor in it.
template <quantizer Q>
struct message_section {
    std::size_t size;      // number of elements to encode
    std::size_t elements;  // number of codes to write, padding included
    std::size_t blocks;    // number of blocks to write, padding included
    std::size_t index;     // first element's index in the whole tensor if noise needs it, otherwise 0
    std::byte* codes;      // address of the first code
    std::byte* params;     // address of the first block's parameters

    /// Section `of`, number i, of the s-th slot's message, which begins at `message`.
    template <class Slices>
    __device__ static message_section of_message(const wire_layout<Q>& layout, std::byte* message, const Slices& where,
                                                 const section& of, std::size_t i, int s) {
        const std::size_t blocks = where.blocks_end(i, Q::block_size) - of.place.blocks(Q::block_size);
        // Groups of ternary codes fill the room before the next section.
        const std::size_t elements = ternary_quantizer<Q> && i + 1 != where.sections()
                                         ? blocks * Q::block_size
                                         : where.elements_end(i) - of.place.elements;
        return {of.size(where.rank(s)),
                elements,
                blocks,
                stochastic_quantizer<Q> ? where.index(of, s) : 0,
                message + layout.codes_at(of.place),
                message + layout.params_at(of.place)};
    }

    /// The rest of the section from granule number `granules` on (`moved` in sources.cuh), with the section's sizes.
    __device__ message_section moved(std::size_t granules) const {
        constexpr std::size_t block_granules = Q::block_size / granule_size;
        return {size,
                elements,
                blocks,
                index + granules * granule_size,
                kept_address(codes + granules * Q::code_bits),
                kept_address(params + granules / block_granules * params_bytes<Q>)};
    }

    /// Stores the codes of granule number `granule`; those within `elements` unless `Whole`. Of ternary codes, all
    /// threads of a warp must call this together.
    template <bool Whole>
    __device__ void store(const packed_codes<Q::code_bits>& of_granule, std::size_t granule) const {
        if constexpr (ternary_quantizer<Q>) {
            store_ternary<Q>(codes, granule, of_granule, Whole ? ~std::size_t{0} : elements);
        } else {
            const int nominal = Whole ? granule_size : valid_elements(elements, granule);
            if (nominal == 0) return;
            store_codes<Q::code_bits>(codes + granule * Q::code_bits, of_granule, nominal);
        }
    }

    /// Stores the parameters of block number `block`. Unless `Whole`: zeros for a block of padding, and nothing beyond
    /// the section.
    template <bool Whole>
    __device__ void store_params(const typename Q::params& of_block, std::size_t block) const {
        if constexpr (params_bytes<Q> != 0) {
            typename Q::params stored = of_block;
            if constexpr (!Whole) {
                if (block >= blocks) return;
                // Not `stored = {}`: a user's parameters may have other defaults.
                if (block * Q::block_size >= size) memset(static_cast<void*>(&stored), 0, sizeof stored);
            }
            *reinterpret_cast<typename Q::params*>(params + block * params_bytes<Q>) = stored;
        }
    }
};

/// Writes zeros to the padding of a message: after its codes and after its parameters.
template <quantizer Q>
__device__ void clear_padding(const wire_layout<Q>& layout, std::byte* message) {
    const auto clear = [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) message[i] = std::byte{0};
    };
    clear(layout.codes_end, layout.params_offset);
    clear(layout.params_end, layout.bytes);
}

}  // namespace zeropp::detail
