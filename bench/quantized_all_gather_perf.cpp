/// \file
/// quantized_all_gather measured as nccl-tests measure all_gather.

#include "support/checks.hpp"
#include "support/collective_rows.hpp"
#include "support/data.hpp"
#include "support/launch.hpp"
#include "support/quantizers.hpp"
#include "support/queues.hpp"

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace {

using namespace zeropp_bench;

constexpr std::uint64_t seed = 1;

/// The arrays as they are before the first call.
template <class T>
void reset(arrays<T>& a) {
    fill<T>(a.shard, seed, a.part.offset(a.rank));
    std::fill(a.full.begin(), a.full.end(), T(0.0f));
    std::copy(a.shard.begin(), a.shard.end(), a.shard_of_full().begin());
}

template <class T>
std::shared_ptr<arrays<T>> make_arrays(rank_context& ranks, std::size_t elements) {
    const auto a = std::make_shared<arrays<T>>(elements, ranks.size(), ranks.rank());
    reset(*a);
    return a;
}

/// Across nodes to the ranks of the same index, then what has come from there inside the node. Chunks only change the
/// padding.
template <zeropp::quantizer Q>
route route_of(const Q& q, const zeropp::two_level& nodes, std::size_t shard, int chunks) {
    const zeropp::chunking cut(shard, chunks, static_cast<std::size_t>(Q::block_size));
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

template <class T, zeropp::quantizer Q>
quantized_case case_of(const Q& q, const zeropp::two_level& nodes, int chunks, std::shared_ptr<arrays<T>> a,
                       std::shared_ptr<std::vector<std::byte>> scratch, std::shared_ptr<queues> executions) {
    const zeropp::gather_options how{.chunks = chunks};
    scratch->resize(
        std::max(scratch->size(), zeropp::quantized_all_gather_workspace_bytes(nodes, q, a->full.size(), how)));
    quantized_case c;
    c.quantizer = zeropp::short_text(q.name()).str();
    c.hops = route_of(q, nodes, a->part.slice_size(), chunks);
    c.has_in_place = true;
    c.call = [=](comm_type& comm, bool in_place) {
        const std::span<T> shard = in_place ? a->shard_of_full() : std::span<T>(a->shard);
        run_pipelined(executions, [&](const auto& exec) {
            zeropp::quantized_all_gather(exec, comm, q, shard, a->full, how, *scratch);
        });
    };
    c.reset = [a] { reset(*a); };
    c.check = [q, a](bool) { return check_gathered<T>(q, a->full, a->part, seed); };
    return c;
}

/// The transport's own all-gather or, where it has none, the library's without quantization.
native_case native_of(rank_context& ranks, comm_type& comm, std::size_t elements) {
    const std::size_t count = zeropp::partition(elements, ranks.size()).slice_size();
    const std::shared_ptr<native_collectives> native = ranks.native(ranks.everyone());
    const auto form = [&]<class T>(native_format format, T) -> native_case::form {
        // Native collectives want equal shards.
        const auto a = make_arrays<T>(ranks, count * static_cast<std::size_t>(ranks.size()));
        const quantized_case lossless =
            case_of<T>(zeropp::lossless<T>(), ranks.nodes(), 1, a, std::make_shared<std::vector<std::byte>>(), nullptr);
        const auto check = [check = lossless.check] { return check(false); };
        if (native) {
            return {[=] { native->all_gather(format, a->shard.data(), a->full.data(), count); }, check};
        }
        return {[&comm, call = lossless.call] { call(comm, false); }, check};
    };
    return {form(native_format::fp32, float{}), form(native_format::bf16, zeropp::bfloat16{})};
}

template <class T>
void measure(collective_rows& rows, const options& o, rank_context& ranks, std::shared_ptr<queues> executions,
             std::size_t bytes) {
    const std::size_t elements = bytes / sizeof(T);
    const auto a = make_arrays<T>(ranks, elements);
    const auto scratch = std::make_shared<std::vector<std::byte>>();
    std::vector<quantized_case> cases;
    for (const std::string& name : o.quantizers) {
        std::visit(
            [&](const auto& q) { cases.push_back(case_of<T>(q, ranks.nodes(), o.chunks, a, scratch, executions)); },
            bench_quantizers::parse(name));
    }
    const double others = static_cast<double>(ranks.size() - 1) / ranks.size();
    rows.measure({elements * sizeof(T), elements, a->part.slice_size(), datatype<T>, sizeof(T), others},
                 native_of(ranks, rows.comm(), elements), cases);
}

}  // namespace

int main(int argc, char** argv) {
    const program_facts program{
        .name = "quantized_all_gather_perf",
        .purpose =
            "Times zeropp::quantized_all_gather beside the transport's own all-gather and beside the bare exchange "
            "of its messages, in turns.",
        .quantizers = {"int8:256"},
        .has_chunks = true};
    return launch(argc, argv, program, [&](const options& o, rank_context& ranks) {
        const std::string native = ranks.native_all_gather_name();
        collective_rows rows(program, o, ranks, native.empty() ? "quantized_all_gather with lossless" : native);
        const auto executions = queues_for(o.chunks);
        for (const std::string& type : o.datatypes) {
            for (const std::size_t bytes : o.sizes()) {
                with_datatype(type, [&]<class T>(T) { measure<T>(rows, o, ranks, executions, bytes); });
            }
        }
        return rows.finish();
    });
}
