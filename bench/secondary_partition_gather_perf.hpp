#pragma once
/// \file
/// secondary_partition_gather measured as nccl-tests measure all_gather: inside every node, on all nodes at once.

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
#include <variant>
#include <vector>

namespace zeropp_bench::secondary_partition_gather_perf {

inline constexpr std::uint64_t seed = 1;
inline constexpr std::uint64_t version = 1;

/// The ranks of this rank's node.
inline std::vector<int> node_of(const rank_context& ranks) {
    const zeropp::two_level& nodes = ranks.nodes();
    std::vector<int> members;
    for (int i = 0; i != nodes.group_size(); ++i) members.push_back(nodes.rank_of(nodes.group_of(ranks.rank()), i));
    return members;
}

template <class T, class Place, zeropp::quantizer Q>
quantized_case case_of(const Q& q, ranks_on<Place>& ranks, comm_on<Place>& comm,
                       std::shared_ptr<typename Place::template array<T>> full,
                       std::shared_ptr<typename Place::template array<std::byte>> scratch,
                       std::shared_ptr<typename Place::executions> executions) {
    using secondary_type = zeropp::secondary_partition<Q, typename Place::space>;
    const int group_size = ranks.nodes().group_size();
    const std::size_t elements = full->size();
    const zeropp::partition part(elements, group_size);
    scratch->reserve(zeropp::secondary_partition_gather_workspace_bytes(group_size, q, elements));

    const auto storage = std::make_shared<typename Place::template array<std::byte>>(
        secondary_type::storage_bytes(q, elements, group_size));
    const auto secondary = std::make_shared<secondary_type>(q, elements, group_size,
                                                            ranks.nodes().index_of(ranks.rank()), storage->view());
    full->write([](std::span<T> values) { fill<T>(values, seed, 0); });
    executions->run([&](const auto& exec) { secondary->store(exec.inside, full->view(), version); });

    quantized_case c;
    c.quantizer = zeropp::short_text(q.name()).str();
    if (group_size > 1) {
        c.hops = {
            {hop::link::inside, hop::pattern::all_gather, zeropp::wire_bytes(q, part.slice_size()), part.slice_size()}};
    }
    c.has_in_place = false;
    set_calls(c, ranks, comm, [=](comm_on<Place>& on, bool) {
        (void)storage;  // what the partition refers to
        executions->run([&](const auto& exec) {
            zeropp::secondary_partition_gather(exec.inside, on, *secondary, version, full->view(), scratch->view());
        });
    });
    c.reset = [full] { full->write([](std::span<T> values) { std::fill(values.begin(), values.end(), T(0.0f)); }); };
    c.check = [=](bool) {
        const auto values = full->read(0, full->size());
        return check_gathered<T>(q, values, part, seed);
    };
    return c;
}

/// The transport's own all-gather inside the node or, where it has none, the library's gather of an exact partition; and
/// the library's.
template <class Place>
unquantized_cases unquantized_of(ranks_on<Place>& ranks, comm_on<Place>& comm,
                      std::shared_ptr<typename Place::executions> executions, std::size_t elements) {
    const std::size_t count = zeropp::partition(elements, ranks.nodes().group_size()).slice_size();
    const std::shared_ptr<native_collectives> native = ranks.native(node_of(ranks));
    const auto form = [&]<class T>(native_format format, T, bool ours = false) -> unquantized_cases::form {
        using array = typename Place::template array<T>;
        // Native collectives want equal shards.
        const auto full = std::make_shared<array>(count * static_cast<std::size_t>(ranks.nodes().group_size()));
        const quantized_case lossless =
            case_of<T>(zeropp::lossless<T>(), ranks, comm, full,
                       std::make_shared<typename Place::template array<std::byte>>(), executions);
        const auto check = [check = lossless.check] { return check(false); };
        if (native && !ours) {
            const auto shard = std::make_shared<array>(count);
            const std::size_t offset = count * static_cast<std::size_t>(ranks.nodes().index_of(ranks.rank()));
            shard->write([&](std::span<T> values) { fill<T>(values, seed, offset); });
            return {[=] { native->all_gather(format, shard->view().data(), full->view().data(), count); }, check,
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
    const int group_size = ranks.nodes().group_size();
    const auto full = std::make_shared<typename Place::template array<T>>(bytes / sizeof(T));
    const auto scratch = std::make_shared<typename Place::template array<std::byte>>();
    std::vector<quantized_case> cases;
    for (const std::string& name : o.quantizers) {
        std::visit([&](const auto& q) { cases.push_back(case_of<T>(q, ranks, comm, full, scratch, executions)); },
                   bench_quantizers::parse(name));
    }
    const std::size_t elements = full->size();
    const double others = static_cast<double>(group_size - 1) / group_size;
    rows.measure({elements * sizeof(T), elements, zeropp::partition(elements, group_size).slice_size(), datatype<T>,
                  sizeof(T), others},
                 unquantized_of(ranks, comm, executions, elements), cases);
}

inline program_facts facts() {
    return {.name = "secondary_partition_gather_perf",
            .purpose = "Times zeropp::secondary_partition_gather, whose group is the node, beside the transport's own "
                       "all-gather inside nodes and beside the bare exchange of its messages, in turns.",
            .quantizers = {"bf16", "int8:256"}};
}

/// What every rank runs.
template <class Place>
int run(const options& o, ranks_on<Place>& ranks) {
    const std::string native = ranks.native_all_gather_name();
    collective_rows rows(facts(), o, ranks,
                         native.empty() ? "secondary_partition_gather with lossless" : native + " inside nodes");
    comm_on<Place> comm(ranks.nodes(), ranks.world());
    const auto executions = std::make_shared<typename Place::executions>(1);
    for (const std::string& type : o.datatypes) {
        for (const std::size_t bytes : o.sizes()) {
            with_datatype(type, [&]<class T>(T) { measure<T>(rows, o, ranks, comm, executions, bytes); });
        }
    }
    return rows.finish();
}

}  // namespace zeropp_bench::secondary_partition_gather_perf
