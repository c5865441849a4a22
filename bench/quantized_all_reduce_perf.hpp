#pragma once
/// \file
/// quantized_all_reduce measured as nccl-tests measure all_reduce. The way back has the quantizer of the hop across.

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

namespace zeropp_bench::quantized_all_reduce_perf {

inline constexpr std::uint64_t first_seed = 1;

/// A rank's tensor, and room for the result.
template <class T, class Place>
struct tensors {
    int rank;
    typename Place::template array<T> full;
    typename Place::template array<T> result;

    tensors(std::size_t elements, int r) : rank(r), full(elements), result(elements) { reset(); }

    /// As before the first call.
    void reset() {
        full.write([&](std::span<T> all) { fill<T>(all, first_seed + static_cast<std::uint64_t>(rank), 0); });
        result.write([](std::span<T> all) { std::fill(all.begin(), all.end(), T(0.0f)); });
    }
};

/// Out as a reduce-scatter and back as an all-gather; or, for small tensors, all of everybody's to everybody.
template <zeropp::quantizer Inside, zeropp::quantizer Across>
route route_of(const Inside& inside, const Across& across, const zeropp::two_level& nodes, std::size_t elements,
               int chunks) {
    const std::size_t slice = zeropp::partition(elements, nodes.size()).slice_size();
    const auto groups = static_cast<std::size_t>(nodes.groups());
    const auto ranks = static_cast<std::size_t>(nodes.size());
    const bool hop_inside = nodes.group_size() > 1;
    const bool hop_across = nodes.groups() > 1;
    const std::size_t first =
        zeropp::has_hop_inside(nodes) ? zeropp::wire_bytes(inside, slice) : zeropp::wire_bytes(across, slice);
    route hops;
    const auto add_gather = [&](std::size_t bytes, std::size_t count) {
        if (hop_across) hops.push_back({hop::link::across, hop::pattern::all_gather, bytes, count});
        if (hop_inside) hops.push_back({hop::link::inside, hop::pattern::all_gather, groups * bytes, groups * count});
    };
    if (zeropp::detail::algorithm_for(zeropp::all_reduce_algorithm::by_size, nodes.size(), ranks * first) ==
        zeropp::all_reduce_algorithm::one_shot) {
        add_gather(ranks * first, ranks * slice);
        return hops;
    }
    const int cuts = zeropp::detail::chunks_for(chunks, nodes, zeropp::wire_bytes(across, slice), true);
    const zeropp::chunking cut(slice, cuts, static_cast<std::size_t>(std::max(Inside::block_size, Across::block_size)));
    std::size_t in = 0, out = 0;
    for (std::size_t c = 0; c != cut.chunks; ++c) {
        in += groups * zeropp::wire_bytes(inside, cut.count(c));
        out += zeropp::wire_bytes(across, cut.count(c));
    }
    if (hop_inside) hops.push_back({hop::link::inside, hop::pattern::all_to_all, in, groups * slice});
    if (hop_across) hops.push_back({hop::link::across, hop::pattern::all_to_all, out, slice});
    add_gather(out, slice);
    return hops;
}

template <class T, class Place, zeropp::quantizer Inside, zeropp::quantizer Across>
quantized_case case_of(const Inside& inside, const Across& across, ranks_on<Place>& ranks, comm_on<Place>& comm,
                       int chunks, std::shared_ptr<tensors<T, Place>> a,
                       std::shared_ptr<typename Place::template array<std::byte>> scratch,
                       std::shared_ptr<typename Place::executions> executions) {
    const zeropp::all_reduce_options how{.chunks = chunks};
    const zeropp::two_level& nodes = ranks.nodes();
    scratch->reserve(zeropp::quantized_all_reduce_workspace_bytes(nodes, inside, across, across, a->full.size(), how));
    quantized_case c;
    c.hops = route_of(inside, across, nodes, a->full.size(), chunks);
    const bool gathers = c.hops.empty() || c.hops.front().what == hop::pattern::all_gather;
    c.has_in_place = true;
    set_calls(c, ranks, comm, [=](comm_on<Place>& on, bool in_place) {
        executions->run([&](const auto& exec) {
            zeropp::quantized_all_reduce(exec, on, inside, across, across, a->full.view(),
                                         in_place ? a->full.view() : a->result.view(), how, scratch->view());
        });
    });
    c.reset = [a] { a->reset(); };
    c.check = [=](bool in_place) {
        auto& found = in_place ? a->full : a->result;
        const auto full = found.read(0, found.size());
        if (!gathers) return check_all_reduced<T>(inside, across, across, nodes, std::span<const T>(full), first_seed);
        const zeropp::partition part(full.size(), nodes.size());
        tally all;
        for (int r = 0; r != part.ranks(); ++r) {
            const std::size_t offset = part.offset(r);
            const auto slice = std::span<const T>(full).subspan(offset, part.size(r));
            all.add(compare_in_pieces<T>(slice, [&](std::size_t begin, std::size_t n) {
                return zeropp::has_hop_inside(nodes)
                           ? expected_sum<T>(inside, nodes.size(), first_seed, offset + begin, n)
                           : expected_sum<T>(across, nodes.size(), first_seed, offset + begin, n);
            }));
        }
        return all;
    };
    return c;
}

/// The transport's own all-reduce or, where it has none, the library's; and the library's.
template <class Place>
unquantized_cases unquantized_of(ranks_on<Place>& ranks, comm_on<Place>& comm, int chunks,
                                 std::shared_ptr<typename Place::executions> executions, std::size_t elements) {
    const std::shared_ptr<native_collectives> native = ranks.native(ranks.everyone());
    const auto form = [&]<class T>(native_format format, T, bool ours = false) -> unquantized_cases::form {
        const auto a = std::make_shared<tensors<T, Place>>(elements, ranks.rank());
        const zeropp::lossless<T> q;
        if (native && !ours) {
            const auto check = [q, a, n = ranks.size()] {
                const auto full = a->result.read(0, a->result.size());
                return compare_in_pieces<T>(std::span<const T>(full), [&](std::size_t begin, std::size_t count) {
                    return expected_sum<T, T>(q, n, first_seed, begin, count);
                });
            };
            return {[=] { native->all_reduce(format, a->full.view().data(), a->result.view().data(), elements); },
                    check, [native] { return native->algorithm_of_last_call(); }};
        }
        const quantized_case lossless = case_of<T>(
            q, q, ranks, comm, chunks, a, std::make_shared<typename Place::template array<std::byte>>(), executions);
        return {[call = lossless.call] { call(false); }, [check = lossless.check] { return check(false); }};
    };
    return {form(native_format::fp32, float{}), form(native_format::bf16, zeropp::bfloat16{}),
            form(native_format::bf16, zeropp::bfloat16{}, true)};
}

template <class T, class Place>
void measure(collective_rows& rows, const options& o, ranks_on<Place>& ranks, comm_on<Place>& comm,
             std::shared_ptr<typename Place::executions> executions, std::size_t bytes) {
    const std::size_t elements = bytes / sizeof(T);
    const auto a = std::make_shared<tensors<T, Place>>(elements, ranks.rank());
    const auto scratch = std::make_shared<typename Place::template array<std::byte>>();
    std::vector<quantized_case> cases;
    for (const std::string& name : o.quantizers) {
        const hop_quantizers q = hop_quantizers::parse(name);
        q.visit([&](const auto& inside, const auto& across) {
            cases.push_back(case_of<T>(inside, across, ranks, comm, o.chunks, a, scratch, executions));
        });
        cases.back().quantizer = q.name();
    }
    const double both_ways = 2.0 * static_cast<double>(ranks.size() - 1) / ranks.size();
    const std::size_t shard = zeropp::partition(elements, ranks.size()).slice_size();
    rows.measure({elements * sizeof(T), elements, shard, datatype<T>, sizeof(T), both_ways},
                 unquantized_of(ranks, comm, o.chunks, executions, elements), cases);
}

inline program_facts facts() {
    return {.name = "quantized_all_reduce_perf",
            .purpose = "Times zeropp::quantized_all_reduce beside the transport's own all-reduce and beside the bare "
                       "exchange of its messages, in turns. The way back has the quantizer of the hop across.",
            .quantizers = {"int8:256+int4:128"},
            .quantizes = wire::two_hops,
            .has_chunks = true};
}

/// What every rank runs.
template <class Place>
int run(const options& o, ranks_on<Place>& ranks) {
    const std::string native = ranks.native_all_reduce_name();
    collective_rows rows(facts(), o, ranks, native.empty() ? "quantized_all_reduce with lossless" : native);
    comm_on<Place> comm(ranks.nodes(), ranks.world());
    const auto executions = std::make_shared<typename Place::executions>(o.chunks);
    for (const std::string& type : o.datatypes) {
        for (const std::size_t bytes : o.sizes()) {
            with_datatype(type, [&]<class T>(T) { measure<T>(rows, o, ranks, comm, executions, bytes); });
        }
    }
    return rows.finish();
}

}  // namespace zeropp_bench::quantized_all_reduce_perf
