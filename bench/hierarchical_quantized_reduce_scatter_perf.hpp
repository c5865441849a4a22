#pragma once
/// \file
/// hierarchical_quantized_reduce_scatter measured as nccl-tests measure reduce_scatter.

#include "support/checks.hpp"
#include "support/collective_rows.hpp"
#include "support/data.hpp"
#include "support/quantizers.hpp"

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace zeropp_bench::hierarchical_quantized_reduce_scatter_perf {

inline constexpr std::uint64_t first_seed = 1;

/// The arrays as they are before the first call.
template <class T, class Place>
void reset(arrays<T, Place>& a) {
    a.full.write([&](std::span<T> full) { fill<T>(full, first_seed + static_cast<std::uint64_t>(a.rank), 0); });
    a.shard.write([](std::span<T> shard) { std::fill(shard.begin(), shard.end(), T(0.0f)); });
}

template <class T, class Place>
std::shared_ptr<arrays<T, Place>> make_arrays(ranks_on<Place>& ranks, std::size_t elements) {
    const auto a = std::make_shared<arrays<T, Place>>(elements, ranks.size(), ranks.rank());
    reset(*a);
    return a;
}

/// To everybody inside the node, for them and their counterparts; then the sums to the counterparts. Chunks only change
/// the padding.
template <zeropp::quantizer Inside, zeropp::quantizer Across>
route route_of(const Inside& inside, const Across& across, const zeropp::two_level& nodes, std::size_t elements,
               int chunks) {
    const std::size_t slice = zeropp::partition(elements, nodes.size()).slice_size();
    const int cuts = zeropp::detail::chunks_for(chunks, nodes, zeropp::wire_bytes(across, slice), true);
    const zeropp::chunking cut(slice, cuts, static_cast<std::size_t>(std::max(Inside::block_size, Across::block_size)));
    const auto groups = static_cast<std::size_t>(nodes.groups());
    hop in{hop::link::inside, hop::pattern::all_to_all, 0, groups * slice};
    hop out{hop::link::across, hop::pattern::all_to_all, 0, slice};
    for (std::size_t c = 0; c != cut.chunks; ++c) {
        in.bytes += groups * zeropp::wire_bytes(inside, cut.count(c));
        out.bytes += zeropp::wire_bytes(across, cut.count(c));
    }
    route hops;
    if (nodes.group_size() > 1) hops.push_back(in);
    if (nodes.groups() > 1) hops.push_back(out);
    return hops;
}

template <class T, class Place, zeropp::quantizer Inside, zeropp::quantizer Across>
quantized_case case_of(const Inside& inside, const Across& across, ranks_on<Place>& ranks, comm_on<Place>& comm,
                       int chunks, std::shared_ptr<arrays<T, Place>> a,
                       std::shared_ptr<typename Place::template array<std::byte>> scratch,
                       std::shared_ptr<typename Place::executions> executions) {
    const zeropp::reduce_options how{.chunks = chunks};
    const zeropp::two_level& nodes = ranks.nodes();
    scratch->reserve(
        zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(nodes, inside, across, a->full.size(), how));
    quantized_case c;
    c.hops = route_of(inside, across, nodes, a->full.size(), chunks);
    c.has_in_place = true;
    set_calls(c, ranks, comm, [=](comm_on<Place>& on, bool in_place) {
        executions->run([&](const auto& exec) {
            zeropp::hierarchical_quantized_reduce_scatter(exec, on, inside, across, a->full.view(), a->slice(in_place),
                                                          how, scratch->view());
        });
    });
    c.reset = [a] { reset(*a); };
    c.check = [=](bool in_place) {
        const auto shard = a->read_slice(in_place);
        return check_reduced<T>(inside, across, nodes, shard, a->part.offset(a->rank), first_seed);
    };
    return c;
}

/// The transport's own reduce-scatter or, where it has none, the library's; and the library's.
template <class Place>
unquantized_cases unquantized_of(ranks_on<Place>& ranks, comm_on<Place>& comm, int chunks,
                                 std::shared_ptr<typename Place::executions> executions, std::size_t elements) {
    const std::size_t count = zeropp::partition(elements, ranks.size()).slice_size();
    const std::shared_ptr<native_collectives> native = ranks.native(ranks.everyone());
    const auto form = [&]<class T>(native_format format, T, bool ours = false) -> unquantized_cases::form {
        // Native collectives want equal shards.
        const auto a = make_arrays<T>(ranks, count * static_cast<std::size_t>(ranks.size()));
        const zeropp::lossless<T> q;
        if (native && !ours) {
            const auto check = [q, a] {
                const auto shard = a->read_slice(false);
                return compare_in_pieces<T>(std::span<const T>(shard), [&](std::size_t begin, std::size_t n) {
                    return expected_sum<T, T>(q, a->part.ranks(), first_seed, a->part.offset(a->rank) + begin, n);
                });
            };
            return {[=] { native->reduce_scatter(format, a->full.view().data(), a->shard.view().data(), count); },
                    check, [native] { return native->algorithm_of_last_call(); }};
        }
        const quantized_case lossless =
            case_of<T>(q, q, ranks, comm, chunks, a, std::make_shared<typename Place::template array<std::byte>>(),
                       executions);
        return {[call = lossless.call] { call(false); }, [check = lossless.check] { return check(false); }};
    };
    return {form(native_format::fp32, float{}), form(native_format::bf16, zeropp::bfloat16{}),
            form(native_format::bf16, zeropp::bfloat16{}, true)};
}

template <class T, class Place>
void measure(collective_rows& rows, const options& o, ranks_on<Place>& ranks, comm_on<Place>& comm,
             std::shared_ptr<typename Place::executions> executions, std::size_t bytes) {
    const std::size_t elements = bytes / sizeof(T);
    const auto a = make_arrays<T>(ranks, elements);
    const auto scratch = std::make_shared<typename Place::template array<std::byte>>();
    std::vector<quantized_case> cases;
    for (const std::string& name : o.quantizers) {
        const hop_quantizers q = hop_quantizers::parse(name);
        q.visit([&](const auto& inside, const auto& across) {
            cases.push_back(case_of<T>(inside, across, ranks, comm, o.chunks, a, scratch, executions));
        });
        cases.back().quantizer = q.name();
    }
    const double others = static_cast<double>(ranks.size() - 1) / ranks.size();
    rows.measure({elements * sizeof(T), elements, a->part.slice_size(), datatype<T>, sizeof(T), others},
                 unquantized_of(ranks, comm, o.chunks, executions, elements), cases);
}

inline program_facts facts() {
    return {.name = "hierarchical_quantized_reduce_scatter_perf",
            .purpose = "Times zeropp::hierarchical_quantized_reduce_scatter beside the transport's own reduce-scatter "
                       "and beside the bare exchange of its messages, in turns.",
            .quantizers = {"int8:256+int4:128"},
            .quantizes = wire::two_hops,
            .has_chunks = true};
}

/// What every rank runs.
template <class Place>
int run(const options& o, ranks_on<Place>& ranks) {
    const std::string native = ranks.native_reduce_scatter_name();
    collective_rows rows(facts(), o, ranks,
                         native.empty() ? "hierarchical_quantized_reduce_scatter with lossless" : native);
    comm_on<Place> comm(ranks.nodes(), ranks.world());
    const auto executions = std::make_shared<typename Place::executions>(o.chunks);
    for (const std::string& type : o.datatypes) {
        for (const std::size_t bytes : o.sizes()) {
            with_datatype(type, [&]<class T>(T) { measure<T>(rows, o, ranks, comm, executions, bytes); });
        }
    }
    return rows.finish();
}

}  // namespace zeropp_bench::hierarchical_quantized_reduce_scatter_perf
