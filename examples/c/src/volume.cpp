#include "library.hpp"

#include "settings.hpp"

#include <zeropp/plan/volume.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

using namespace zeropp_c;

namespace {

template <class Formats>
zeropp::wire_format format_named(const char* format) {
    return std::visit([](const auto& q) { return on_wire(q); }, Formats::parse(format));
}

/// Bytes that `rank` of `ranks` sends, as zeropp_volume_in_sites gives them.
zeropp::volume sent_by(std::string_view function, const char* first, const char* second, std::size_t elements,
                       bool two_shot, const zeropp::three_level& ranks, int rank) {
    if (function == "zeropp_all_gather") {
        return zeropp::all_gather_volume(ranks, format_named<gather_formats>(first), elements, 1, rank);
    }
    if (function == "zeropp_all_to_all") {
        zeropp::detail::existing_rank("volume", ranks.size(), rank);
        return zeropp::all_to_all_volume(ranks, format_named<gather_formats>(first), elements);
    }
    const auto of_two = [&] {
        if (second != nullptr) return second;
        throw zeropp::precondition_error(function, "two formats", "one");
    };
    if (function == "zeropp_update_gather") {
        return zeropp::update_gather_volume(ranks, format_named<difference_formats>(first),
                                            format_named<gather_formats>(of_two()), elements, 1, rank);
    }
    if (function == "zeropp_replica_gather") {
        return zeropp::replica_gather_volume(ranks, format_named<gather_formats>(first), elements, rank);
    }
    const bool all_reduce = function == "zeropp_all_reduce";
    if (!all_reduce && function != "zeropp_reduce_scatter") {
        throw zeropp::precondition_error("zeropp_volume_in_sites", "the name of a collective", std::string(function));
    }
    const zeropp::level_formats formats = std::visit(
        [](const auto& hops) {
            return zeropp::level_formats{zeropp::wire_format_of(hops.at(zeropp::level<0>)),
                                         zeropp::wire_format_of(hops.at(zeropp::level<1>)),
                                         zeropp::wire_format_of(hops.at(zeropp::level<2>))};
        },
        hops_named(first, of_two()));
    if (all_reduce && !two_shot) {
        return zeropp::all_reduce_volume(ranks, formats, *formats.inter_site, elements, 1, rank);
    }
    const zeropp::volume sent = zeropp::reduce_scatter_volume(ranks, formats, elements, 1, rank);
    if (!all_reduce) return sent;
    return sent + zeropp::all_gather_volume(ranks, *formats.inter_site, elements, 1, rank);
}

/// Writes the bytes that `rank` sends in one site.
zeropp_status in_one_site(const char* function, const int* node_of_rank, int size, int rank, const char* first,
                          const char* second, std::size_t elements, int two_shot, std::uint64_t* intra_node,
                          std::uint64_t* inter_node) {
    std::uint64_t bytes[zeropp::three_level::levels];
    const zeropp_status status =
        zeropp_volume_in_sites(function, first, second, elements, two_shot, node_of_rank, 0, size, rank, bytes);
    if (status == zeropp_success) {
        *intra_node = bytes[0];
        *inter_node = bytes[1];
    }
    return status;
}

}  // namespace

zeropp_status zeropp_volume_in_sites(const char* function, const char* first, const char* second, size_t elements,
                                     int two_shot, const int* node_of_rank, int nodes_per_site, int size, int rank,
                                     uint64_t* bytes) {
    return status_of([&] {
        // Sums of bytes cannot overflow then.
        require_at_most("zeropp_volume_in_sites", plan::most_parameters, elements);
        const zeropp::three_level ranks = places_of(node_of_rank, nodes_per_site, size);
        zeropp::volume sent = sent_by(function, first, second, elements, two_shot != 0, ranks, rank);
        for (int level = 0; level != zeropp::three_level::levels; ++level) bytes[level] = sent.at(level);
    });
}

zeropp_status zeropp_gather_volume(const int* node_of_rank, int size, int rank, const char* format, size_t elements,
                                   uint64_t* intra_node, uint64_t* inter_node) {
    return in_one_site("zeropp_all_gather", node_of_rank, size, rank, format, nullptr, elements, 0, intra_node,
                       inter_node);
}

zeropp_status zeropp_update_volume(const int* node_of_rank, int size, int rank, const char* differences,
                                   const char* kept, size_t elements, uint64_t* intra_node, uint64_t* inter_node) {
    return in_one_site("zeropp_update_gather", node_of_rank, size, rank, differences, kept, elements, 0, intra_node,
                       inter_node);
}

zeropp_status zeropp_replica_volume(const int* node_of_rank, int size, int rank, const char* kept, size_t elements,
                                    uint64_t* intra_node, uint64_t* inter_node) {
    return in_one_site("zeropp_replica_gather", node_of_rank, size, rank, kept, nullptr, elements, 0, intra_node,
                       inter_node);
}

zeropp_status zeropp_all_reduce_volume(const int* node_of_rank, int size, int rank, const char* intra_node_format,
                                       const char* inter_node_format, size_t elements, int two_shot,
                                       uint64_t* intra_node, uint64_t* inter_node) {
    return in_one_site("zeropp_all_reduce", node_of_rank, size, rank, intra_node_format, inter_node_format, elements,
                       two_shot, intra_node, inter_node);
}

zeropp_status zeropp_reduce_volume(const int* node_of_rank, int size, int rank, const char* intra_node_format,
                                   const char* inter_node_format, size_t elements, uint64_t* intra_node,
                                   uint64_t* inter_node) {
    return in_one_site("zeropp_reduce_scatter", node_of_rank, size, rank, intra_node_format, inter_node_format,
                       elements, 0, intra_node, inter_node);
}
