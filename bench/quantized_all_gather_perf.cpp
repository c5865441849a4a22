/// \file
/// quantized_all_gather measured as nccl-tests measure all_gather.

#include "support/checks.hpp"
#include "support/collective_rows.hpp"
#include "support/data.hpp"
#include "support/launch.hpp"
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

namespace {

using namespace zeropp_bench;

constexpr std::uint64_t seed = 1;

template <class T>
struct arrays {
    zeropp::partition part;
    int rank;
    std::vector<T> full;
    std::vector<T> shard;

    arrays(std::size_t elements, int ranks, int r)
        : part(elements, ranks), rank(r), full(elements), shard(part.size(r)) {
        reset();
    }

    std::span<T> shard_of_full() { return std::span(full).subspan(part.offset(rank), part.size(rank)); }

    void reset() {
        fill<T>(shard, seed, part.offset(rank));
        std::fill(full.begin(), full.end(), T(0.0f));
        std::copy(shard.begin(), shard.end(), shard_of_full().begin());
    }
};

/// Across nodes to the ranks of the same index, then what has come from there inside the node.
template <zeropp::quantizer Q>
route route_of(const Q& q, const zeropp::two_level& nodes, std::size_t shard) {
    route hops;
    const std::size_t bytes = zeropp::wire_bytes(q, shard);
    const auto groups = static_cast<std::size_t>(nodes.groups());
    if (nodes.groups() > 1) hops.push_back({hop::link::across, hop::pattern::all_gather, bytes, shard});
    if (nodes.group_size() > 1) {
        hops.push_back({hop::link::inside, hop::pattern::all_gather, groups * bytes, groups * shard});
    }
    return hops;
}

template <class T, zeropp::quantizer Q>
quantized_case case_of(const Q& q, const zeropp::two_level& nodes, std::shared_ptr<arrays<T>> a,
                       std::shared_ptr<std::vector<std::byte>> scratch) {
    scratch->resize(std::max(scratch->size(), zeropp::quantized_all_gather_workspace_bytes(nodes, q, a->full.size())));
    quantized_case c;
    c.quantizer = zeropp::short_text(q.name()).str();
    c.hops = route_of(q, nodes, a->part.slice_size());
    c.has_in_place = true;
    c.call = [q, a, scratch](comm_type& comm, bool in_place) {
        const std::span<T> shard = in_place ? a->shard_of_full() : std::span<T>(a->shard);
        zeropp::quantized_all_gather(zeropp::host{}, comm, q, shard, a->full, *scratch);
    };
    c.reset = [a] { a->reset(); };
    c.check = [q, a](bool) { return check_gathered<T>(q, a->full, a->part, seed); };
    return c;
}

/// The transport's own all-gather or, where it has none, the library's without quantization.
native_case native_of(rank_context& ranks, comm_type& comm, std::size_t elements) {
    const std::size_t count = zeropp::partition(elements, ranks.size()).slice_size();
    const std::shared_ptr<native_collectives> native = ranks.native(ranks.everyone());
    const auto form = [&]<class T>(native_format format, T) -> native_case::form {
        // Native collectives want equal shards.
        const auto a =
            std::make_shared<arrays<T>>(count * static_cast<std::size_t>(ranks.size()), ranks.size(), ranks.rank());
        const quantized_case lossless =
            case_of<T>(zeropp::lossless<T>(), ranks.nodes(), a, std::make_shared<std::vector<std::byte>>());
        const auto check = [check = lossless.check] { return check(false); };
        if (native) {
            return {[=] { native->all_gather(format, a->shard.data(), a->full.data(), count); }, check};
        }
        return {[&comm, call = lossless.call] { call(comm, false); }, check};
    };
    return {form(native_format::fp32, float{}), form(native_format::bf16, zeropp::bfloat16{})};
}

template <class T>
void measure(collective_rows& rows, const options& o, rank_context& ranks, std::size_t bytes) {
    const std::size_t elements = bytes / sizeof(T);
    const auto a = std::make_shared<arrays<T>>(elements, ranks.size(), ranks.rank());
    const auto scratch = std::make_shared<std::vector<std::byte>>();
    std::vector<quantized_case> cases;
    for (const std::string& name : o.quantizers) {
        std::visit([&](const auto& q) { cases.push_back(case_of<T>(q, ranks.nodes(), a, scratch)); },
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
        .quantizers = {"int8:256"}};
    return launch(argc, argv, program, [&](const options& o, rank_context& ranks) {
        const std::string native = ranks.native_all_gather_name();
        collective_rows rows(program, o, ranks, native.empty() ? "quantized_all_gather with lossless" : native);
        for (const std::string& type : o.datatypes) {
            for (const std::size_t bytes : o.sizes()) {
                with_datatype(type, [&]<class T>(T) { measure<T>(rows, o, ranks, bytes); });
            }
        }
        return rows.finish();
    });
}
