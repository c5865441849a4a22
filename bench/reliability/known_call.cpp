#include "reliability/known_call.hpp"

#include "collective/ranks.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/quantizer/named.hpp>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <variant>

namespace zeropp_reliability {

namespace {

using collective_test::at;
using collective_test::described;
using collective_test::difference;
using collective_test::format_of;
using collective_test::narrowed;
using collective_test::tensor_of;
using collective_test::widened;
namespace reference = collective_test::reference;

using int8 = zeropp::block_integer<8, 256>;
using int4 = zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>;
using quantizers = zeropp::named_quantizers<zeropp::cast_to<float>, zeropp::cast_to<zeropp::bfloat16>, int8, int4>;

constexpr zeropp::host exec;
constexpr zeropp::pipeline<zeropp::host> both_hops{exec, exec};

/// Fills `values` with a number that no collective writes, so that unwritten elements show.
template <class T>
void poison(std::vector<T>& values) {
    std::fill(values.begin(), values.end(), zeropp::element_traits<T>::from_float(-12345.0f));
}

template <class T>
std::string difference_of(const std::vector<T>& given, const std::vector<float>& expected) {
    return difference(widened(given.data(), given.size()), expected);
}

std::vector<int> node_of_rank(const zeropp::two_level& nodes) {
    std::vector<int> map;
    for (int r = 0; r != nodes.size(); ++r) map.push_back(nodes.group_of(r));
    return map;
}

template <class T, class Quantizer>
prepared_call all_gather(const known_call& call, const Quantizer& q, const zeropp::two_level& nodes, int rank) {
    struct arrays {
        std::vector<T> shard, full;
        std::vector<float> expected;
        std::vector<std::byte> scratch;
    };
    const auto ranks = at(nodes.size());
    const std::vector<float> tensor = tensor_of(call.elements, format_of<T>, call.seed);
    const zeropp::gather_options options{.chunks = call.chunks};
    const auto a = std::make_shared<arrays>(
        arrays{narrowed<T>(reference::slice_of(tensor, ranks, at(rank))), std::vector<T>(call.elements),
               reference::gathered(tensor, ranks, described(q), format_of<T>),
               std::vector<std::byte>(zeropp::quantized_all_gather_workspace_bytes(nodes, q, call.elements, options))});
    return [a, q, options](comm_type& comm) {
        poison(a->full);
        zeropp::quantized_all_gather(both_hops, comm, q, a->shard, a->full, options, a->scratch);
        return difference_of(a->full, a->expected);
    };
}

template <class T, class IntraNode, class InterNode>
prepared_call reduce_scatter(const known_call& call, const IntraNode& intra_node, const InterNode& inter_node,
                             const zeropp::two_level& nodes, int rank) {
    struct arrays {
        std::vector<T> full, shard;
        std::vector<float> expected;
        std::vector<std::byte> scratch;
    };
    std::vector<std::vector<float>> fulls;
    for (int r = 0; r != nodes.size(); ++r) {
        fulls.push_back(tensor_of(call.elements, format_of<T>, call.seed + static_cast<std::uint64_t>(r)));
    }
    const zeropp::reduce_options options{.operation = call.mean ? zeropp::reduction::mean : zeropp::reduction::sum,
                                         .chunks = call.chunks};
    const std::vector<float> reduced =
        reference::reduce_scattered(node_of_rank(nodes), fulls, at(rank), described(intra_node), described(inter_node),
                                    call.mean, {}, format_of<T>);
    const auto a = std::make_shared<arrays>(
        arrays{narrowed<T>(fulls[at(rank)]), std::vector<T>(reduced.size()), reduced,
               std::vector<std::byte>(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
                   nodes, zeropp::hops{intra_node, inter_node}, call.elements, options))});
    return [a, intra_node, inter_node, options](comm_type& comm) {
        poison(a->shard);
        zeropp::hierarchical_quantized_reduce_scatter(both_hops, comm, zeropp::hops{intra_node, inter_node}, a->full,
                                                      a->shard, options, a->scratch);
        return difference_of(a->shard, a->expected);
    };
}

template <class T, class Quantizer>
prepared_call secondary_gather(const known_call& call, const Quantizer& q, const zeropp::two_level& nodes, int rank) {
    using secondary_type = zeropp::secondary_partition<Quantizer, zeropp::host_space>;
    struct arrays {
        std::vector<T> tensor, full;
        std::vector<float> expected;
        std::vector<std::byte> storage, scratch;
    };
    const int group_size = nodes.group_size(nodes.group_of(rank));
    const int index = nodes.index_of(rank);
    const std::vector<float> tensor = tensor_of(call.elements, format_of<T>, call.seed);
    const auto a = std::make_shared<arrays>(arrays{
        narrowed<T>(tensor), std::vector<T>(call.elements),
        reference::gathered(tensor, at(group_size), described(q), format_of<T>),
        std::vector<std::byte>(secondary_type::storage_bytes(q, call.elements, group_size)),
        std::vector<std::byte>(zeropp::secondary_partition_gather_workspace_bytes(group_size, q, call.elements))});
    return [a, q, group_size, index, version = call.seed](comm_type& comm) {
        secondary_type secondary(q, a->tensor.size(), group_size, index, a->storage);
        secondary.store(exec, a->tensor, version);
        poison(a->full);
        zeropp::secondary_partition_gather(exec, comm, secondary, version, a->full, a->scratch);
        return difference_of(a->full, a->expected);
    };
}

template <class T, class IntraNode, class InterNode>
prepared_call all_reduce(const known_call& call, const IntraNode& intra_node, const InterNode& inter_node,
                         const zeropp::two_level& nodes, int rank) {
    struct arrays {
        std::vector<T> given, full;
        std::vector<float> expected;
        std::vector<std::byte> scratch;
    };
    const zeropp::all_reduce_options options{.operation = call.mean ? zeropp::reduction::mean : zeropp::reduction::sum,
                                             .chunks = call.chunks,
                                             .algorithm = zeropp::all_reduce_algorithm::two_shot};
    const auto a = std::make_shared<arrays>();
    a->full.resize(call.elements);
    const std::size_t first = call.elements / 3;
    std::size_t begin = 0;
    for (const std::size_t n : {first, call.elements - first}) {
        std::vector<std::vector<float>> fulls;
        for (int r = 0; r != nodes.size(); ++r) {
            fulls.push_back(tensor_of(n, format_of<T>, call.seed + begin + static_cast<std::uint64_t>(r)));
        }
        for (const T x : narrowed<T>(fulls[at(rank)])) a->given.push_back(x);
        for (const float x :
             reference::all_reduced(node_of_rank(nodes), fulls, described(intra_node), described(inter_node),
                                    described(inter_node), call.mean, false, format_of<T>)) {
            a->expected.push_back(x);
        }
        begin += n;
    }
    const auto list = std::make_shared<const zeropp::tensor_list<T>>(
        nodes, std::initializer_list<zeropp::list_tensor<T, zeropp::host_space>>{
                   zeropp::host_view<T>(a->full.data(), first),
                   zeropp::host_view<T>(a->full.data() + first, call.elements - first)});
    a->scratch.resize(zeropp::quantized_all_reduce_workspace_bytes(
        nodes, zeropp::hops{intra_node, inter_node, inter_node}, *list, options));
    return [a, list, intra_node, inter_node, options](comm_type& comm) {
        a->full = a->given;
        zeropp::quantized_all_reduce(both_hops, comm, zeropp::hops{intra_node, inter_node, inter_node}, *list, *list,
                                     options, a->scratch);
        return difference_of(a->full, a->expected);
    };
}

template <class T, class IntraNode, class InterNode>
prepared_call reduction(const known_call& call, const IntraNode& intra_node, const InterNode& inter_node,
                        const zeropp::two_level& nodes, int rank) {
    return call.what == known_call::collective::quantized_all_reduce
               ? all_reduce<T>(call, intra_node, inter_node, nodes, rank)
               : reduce_scatter<T>(call, intra_node, inter_node, nodes, rank);
}

template <class T, class IntraNode>
prepared_call of_element(const known_call& call, const IntraNode& intra_node, const zeropp::two_level& nodes,
                         int rank) {
    switch (call.what) {
    case known_call::collective::quantized_all_gather:
        return all_gather<T>(call, intra_node, nodes, rank);
    case known_call::collective::secondary_partition_gather:
        return secondary_gather<T>(call, intra_node, nodes, rank);
    case known_call::collective::hierarchical_quantized_reduce_scatter:
    case known_call::collective::quantized_all_reduce:
        break;
    }
    if (call.inter_node == call.intra_node) return reduction<T>(call, intra_node, intra_node, nodes, rank);
    if constexpr (std::is_same_v<IntraNode, int8>) {
        if (std::holds_alternative<int4>(quantizers::parse(call.inter_node))) {
            return reduction<T>(call, intra_node, int4{}, nodes, rank);
        }
    }
    throw zeropp::precondition_error("known_call", "the same quantizer for both hops, or int8:256 and INT4",
                                     call.intra_node + " and " + call.inter_node);
}

}  // namespace

std::string known_call::text() const {
    static constexpr const char* names[] = {"quantized_all_gather", "hierarchical_quantized_reduce_scatter",
                                            "secondary_partition_gather", "quantized_all_reduce"};
    std::string t = names[static_cast<std::size_t>(what)];
    t += " of " + std::to_string(elements) + (bfloat16 ? " bf16" : " fp32") + " with " + intra_node;
    if (what == collective::hierarchical_quantized_reduce_scatter || what == collective::quantized_all_reduce)
        t += " and " + inter_node + (mean ? ", mean" : ", sum");
    if (what != collective::secondary_partition_gather) t += " in " + std::to_string(chunks) + " chunks";
    return t;
}

const std::vector<std::string>& known_quantizers() {
    static const std::vector<std::string> names{"fp32", "bf16", "int8:256", "int4:128:signed:bf16"};
    return names;
}

prepared_call prepare(const known_call& call, const zeropp::two_level& nodes, int rank) {
    return std::visit(
        [&](const auto& intra_node) {
            return call.bfloat16 ? of_element<zeropp::bfloat16>(call, intra_node, nodes, rank)
                                 : of_element<float>(call, intra_node, nodes, rank);
        },
        quantizers::parse(call.intra_node));
}

}  // namespace zeropp_reliability
