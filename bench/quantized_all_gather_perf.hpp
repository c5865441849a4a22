#pragma once
/// \file
/// quantized_all_gather measured as nccl-tests measure all_gather.

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
#include <utility>
#include <variant>
#include <vector>

namespace zeropp_bench::quantized_all_gather_perf {

inline constexpr std::uint64_t seed = 1;

/// The arrays as they are before the first call.
template <class T, class Place>
void reset(arrays<T, Place>& a) {
    const std::size_t offset = a.part.offset(a.rank);
    a.shard.write([&](std::span<T> shard) { fill<T>(shard, seed, offset); });
    a.full.write([&](std::span<T> full) {
        std::fill(full.begin(), full.end(), T(0.0f));
        fill<T>(full.subspan(offset, a.part.size(a.rank)), seed, offset);
    });
}

template <class T, class Place>
std::shared_ptr<arrays<T, Place>> make_arrays(ranks_on<Place>& ranks, std::size_t elements) {
    const auto a = std::make_shared<arrays<T, Place>>(elements, ranks.size(), ranks.rank());
    reset(*a);
    return a;
}

/// Across nodes to the ranks of the same index, then what has come from there inside the node. Chunks only change the
/// padding.
template <zeropp::quantizer Q>
route route_of(const Q& q, const zeropp::two_level& nodes, std::size_t shard, int chunks) {
    const int cuts = zeropp::detail::chunks_for(chunks, nodes, zeropp::wire_bytes(q, shard), true);
    const zeropp::chunking cut(shard, cuts, static_cast<std::size_t>(Q::block_size));
    std::size_t bytes = 0;
    for (std::size_t c = 0; c != cut.chunks; ++c) bytes += zeropp::wire_bytes(q, cut.count(c));
    route hops;
    const auto groups = static_cast<std::size_t>(nodes.groups());
    if (nodes.groups() > 1) hops.push_back({hop::link::across, hop::pattern::all_gather, bytes, shard});
    if (nodes.group_size() > 1) {
        hops.push_back({hop::link::inside, hop::pattern::all_gather, groups * bytes, groups * shard});
    }
    return hops;
}

template <class T, class Place, zeropp::quantizer Q>
quantized_case case_of(const Q& q, ranks_on<Place>& ranks, comm_on<Place>& comm, int chunks,
                       std::shared_ptr<arrays<T, Place>> a,
                       std::shared_ptr<typename Place::template array<std::byte>> scratch,
                       std::shared_ptr<typename Place::executions> executions) {
    const zeropp::gather_options how{.chunks = chunks};
    scratch->reserve(zeropp::quantized_all_gather_workspace_bytes(ranks.nodes(), q, a->full.size(), how));
    quantized_case c;
    c.quantizer = zeropp::short_text(q.name()).str();
    c.hops = route_of(q, ranks.nodes(), a->part.slice_size(), chunks);
    c.has_in_place = true;
    set_calls(c, ranks, comm, [=](comm_on<Place>& on, bool in_place) {
        executions->run([&](const auto& exec) {
            zeropp::quantized_all_gather(exec, on, q, a->slice(in_place), a->full.view(), how, scratch->view());
        });
    });
    c.reset = [a] { reset(*a); };
    c.check = [q, a](bool) {
        const auto full = a->full.read(0, a->full.size());
        return check_gathered<T>(q, full, a->part, seed);
    };
    return c;
}

/// The transport's own all-gather or, where it has none, the library's; and the library's.
template <class Place>
unquantized_cases unquantized_of(ranks_on<Place>& ranks, comm_on<Place>& comm, int chunks,
                                 std::shared_ptr<typename Place::executions> executions, std::size_t elements) {
    const std::size_t count = zeropp::partition(elements, ranks.size()).slice_size();
    const std::shared_ptr<native_collectives> native = ranks.native(ranks.everyone());
    const auto form = [&]<class T>(native_format format, T, bool ours = false) -> unquantized_cases::form {
        // Native collectives want equal shards.
        const auto a = make_arrays<T>(ranks, count * static_cast<std::size_t>(ranks.size()));
        const quantized_case lossless = case_of<T>(zeropp::lossless<T>(), ranks, comm, chunks, a,
                                                   std::make_shared<typename Place::template array<std::byte>>(),
                                                   executions);
        const auto check = [check = lossless.check] { return check(false); };
        if (native && !ours) {
            return {[=] { native->all_gather(format, a->shard.view().data(), a->full.view().data(), count); }, check,
                    [native] { return native->algorithm_of_last_call(); }};
        }
        return {[call = lossless.call] { call(false); }, check};
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
        std::visit(
            [&](const auto& q) { cases.push_back(case_of<T>(q, ranks, comm, o.chunks, a, scratch, executions)); },
            bench_quantizers::parse(name));
    }
    const double others = static_cast<double>(ranks.size() - 1) / ranks.size();
    rows.measure({elements * sizeof(T), elements, a->part.slice_size(), datatype<T>, sizeof(T), others},
                 unquantized_of(ranks, comm, o.chunks, executions, elements), cases);
}

inline program_facts facts() {
    return {.name = "quantized_all_gather_perf",
            .purpose = "Times zeropp::quantized_all_gather beside the transport's own all-gather and beside the bare "
                       "exchange of its messages, in turns.",
            .quantizers = {"int8:256"},
            .has_chunks = true};
}

/// What every rank runs.
template <class Place>
int run(const options& o, ranks_on<Place>& ranks) {
    const std::string native = ranks.native_all_gather_name();
    collective_rows rows(facts(), o, ranks, native.empty() ? "quantized_all_gather with lossless" : native);
    comm_on<Place> comm(ranks.nodes(), ranks.world());
    const auto executions = std::make_shared<typename Place::executions>(o.chunks);
    for (const std::string& type : o.datatypes) {
        for (const std::size_t bytes : o.sizes()) {
            with_datatype(type, [&]<class T>(T) { measure<T>(rows, o, ranks, comm, executions, bytes); });
        }
    }
    return rows.finish();
}

}  // namespace zeropp_bench::quantized_all_gather_perf
