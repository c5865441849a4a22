#include "library.hpp"

#include <zeropp/plan/volume.hpp>
#include <zeropp/plan/wire_format.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <variant>

using namespace zeropp_torch;

zt_status zt_gather_volume(const int* node_of_rank, int size, const char* format, size_t elements, uint64_t* inside,
                           uint64_t* across) {
    return status_of([&] {
        const zeropp::two_level ranks(std::span(node_of_rank, static_cast<std::size_t>(size)));
        const auto on_wire =
            std::visit([](const auto& q) { return zeropp::wire_format_of(q); }, gather_formats::parse(format));
        const zeropp::volume sent = zeropp::all_gather_volume(ranks, on_wire, elements);
        *inside = sent.inside;
        *across = sent.across;
    });
}

zt_status zt_reduce_volume(const int* node_of_rank, int size, const char* inside_format, const char* across_format,
                           size_t elements, uint64_t* inside, uint64_t* across) {
    return status_of([&] {
        const zeropp::two_level ranks(std::span(node_of_rank, static_cast<std::size_t>(size)));
        const zeropp::volume sent = std::visit(
            [&](const auto& hops) {
                return zeropp::reduce_scatter_volume(ranks, zeropp::wire_format_of(hops.inside),
                                                     zeropp::wire_format_of(hops.across), elements);
            },
            reduce_formats::parse(inside_format, across_format));
        *inside = sent.inside;
        *across = sent.across;
    });
}
