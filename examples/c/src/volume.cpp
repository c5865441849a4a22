#include "library.hpp"

#include <zeropp/plan/volume.hpp>

#include <cstddef>
#include <string_view>
#include <variant>

using namespace zeropp_c;

namespace {

template <class Formats>
zeropp::wire_format on_wire(const char* format) {
    return std::visit([](const auto& q) { return zeropp::wire_format_of(q); }, Formats::parse(format));
}

}  // namespace

zeropp_status zeropp_gather_volume(const int* node_of_rank, int size, int rank, const char* format, size_t elements,
                                   uint64_t* intra_node, uint64_t* inter_node) {
    return status_of([&] {
        const zeropp::volume sent =
            zeropp::all_gather_volume(nodes_of(node_of_rank, size), on_wire<gather_formats>(format), elements, 1, rank);
        *intra_node = sent.intra_node;
        *inter_node = sent.inter_node;
    });
}

zeropp_status zeropp_update_volume(const int* node_of_rank, int size, int rank, const char* differences,
                                   const char* kept, size_t elements, uint64_t* intra_node, uint64_t* inter_node) {
    return status_of([&] {
        const zeropp::volume sent =
            zeropp::update_gather_volume(nodes_of(node_of_rank, size), on_wire<difference_formats>(differences),
                                         on_wire<gather_formats>(kept), elements, 1, rank);
        *intra_node = sent.intra_node;
        *inter_node = sent.inter_node;
    });
}

zeropp_status zeropp_replica_volume(const int* node_of_rank, int size, int rank, const char* kept, size_t elements,
                                    uint64_t* intra_node, uint64_t* inter_node) {
    return status_of([&] {
        const zeropp::volume sent =
            zeropp::replica_gather_volume(nodes_of(node_of_rank, size), on_wire<gather_formats>(kept), elements, rank);
        *intra_node = sent.intra_node;
        *inter_node = sent.inter_node;
    });
}

zeropp_status zeropp_all_reduce_volume(const int* node_of_rank, int size, int rank, const char* intra_node_format,
                                       const char* inter_node_format, size_t elements, int two_shot,
                                       uint64_t* intra_node, uint64_t* inter_node) {
    return status_of([&] {
        const zeropp::volume sent = std::visit(
            [&](const auto& hops) {
                const auto ranks = nodes_of(node_of_rank, size);
                const auto first = zeropp::wire_format_of(hops.at(zeropp::level<0>));
                const auto second = zeropp::wire_format_of(hops.at(zeropp::level<1>));
                if (two_shot == 0) return zeropp::all_reduce_volume(ranks, {first, second}, second, elements, 1, rank);
                return zeropp::reduce_scatter_volume(ranks, {first, second}, elements, 1, rank) +
                       zeropp::all_gather_volume(ranks, second, elements, 1, rank);
            },
            reduce_formats::parse(intra_node_format, inter_node_format));
        *intra_node = sent.intra_node;
        *inter_node = sent.inter_node;
    });
}

zeropp_status zeropp_reduce_volume(const int* node_of_rank, int size, int rank, const char* intra_node_format,
                                   const char* inter_node_format, size_t elements, uint64_t* intra_node,
                                   uint64_t* inter_node) {
    return status_of([&] {
        const zeropp::volume sent = std::visit(
            [&](const auto& hops) {
                return zeropp::reduce_scatter_volume(nodes_of(node_of_rank, size),
                                                     {zeropp::wire_format_of(hops.at(zeropp::level<0>)),
                                                      zeropp::wire_format_of(hops.at(zeropp::level<1>))},
                                                     elements, 1, rank);
            },
            reduce_formats::parse(intra_node_format, inter_node_format));
        *intra_node = sent.intra_node;
        *inter_node = sent.inter_node;
    });
}
