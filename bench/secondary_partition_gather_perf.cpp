/// \file
/// secondary_partition_gather measured as nccl-tests measure all_gather: inside every node, on all nodes at once.

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
#include <variant>
#include <vector>

namespace {

using namespace zeropp_bench;

constexpr std::uint64_t seed = 1;
constexpr std::uint64_t version = 1;

/// The ranks of this rank's node.
std::vector<int> node_of(rank_context& ranks) {
    const zeropp::two_level& nodes = ranks.nodes();
    std::vector<int> members;
    for (int i = 0; i != nodes.group_size(); ++i) members.push_back(nodes.rank_of(nodes.group_of(ranks.rank()), i));
    return members;
}

template <class T, zeropp::quantizer Q>
quantized_case case_of(const Q& q, rank_context& ranks, std::shared_ptr<std::vector<T>> full,
                       std::shared_ptr<std::vector<std::byte>> scratch) {
    using secondary_type = zeropp::secondary_partition<Q, zeropp::host_space>;
    const int group_size = ranks.nodes().group_size();
    const std::size_t elements = full->size();
    const zeropp::partition part(elements, group_size);
    scratch->resize(
        std::max(scratch->size(), zeropp::secondary_partition_gather_workspace_bytes(group_size, q, elements)));

    const auto storage =
        std::make_shared<std::vector<std::byte>>(secondary_type::storage_bytes(q, elements, group_size));
    const auto secondary =
        std::make_shared<secondary_type>(q, elements, group_size, ranks.nodes().index_of(ranks.rank()), *storage);
    fill<T>(*full, seed, 0);
    secondary->store(zeropp::host{}, *full, version);

    quantized_case c;
    c.quantizer = zeropp::short_text(q.name()).str();
    if (group_size > 1) {
        c.hops = {
            {hop::link::inside, hop::pattern::all_gather, zeropp::wire_bytes(q, part.slice_size()), part.slice_size()}};
    }
    c.has_in_place = false;
    c.call = [=](comm_type& comm, bool) {
        (void)storage;  // what the partition refers to
        zeropp::secondary_partition_gather(zeropp::host{}, comm, *secondary, version, *full, *scratch);
    };
    c.reset = [full] { std::fill(full->begin(), full->end(), T(0.0f)); };
    c.check = [=](bool) { return check_gathered<T>(q, *full, part, seed); };
    return c;
}

/// The transport's own all-gather inside the node or, where it has none, the library's gather of an exact partition.
native_case native_of(rank_context& ranks, comm_type& comm, std::size_t elements) {
    const std::size_t count = zeropp::partition(elements, ranks.nodes().group_size()).slice_size();
    const std::shared_ptr<native_collectives> native = ranks.native(node_of(ranks));
    const auto form = [&]<class T>(native_format format, T) -> native_case::form {
        // Native collectives want equal shards.
        const auto full =
            std::make_shared<std::vector<T>>(count * static_cast<std::size_t>(ranks.nodes().group_size()));
        const quantized_case lossless =
            case_of<T>(zeropp::lossless<T>(), ranks, full, std::make_shared<std::vector<std::byte>>());
        const auto check = [check = lossless.check] { return check(false); };
        if (native) {
            const auto shard = std::make_shared<std::vector<T>>(count);
            fill<T>(*shard, seed, count * static_cast<std::size_t>(ranks.nodes().index_of(ranks.rank())));
            return {[=] { native->all_gather(format, shard->data(), full->data(), count); }, check};
        }
        return {[&comm, call = lossless.call] { call(comm, false); }, check};
    };
    return {form(native_format::fp32, float{}), form(native_format::bf16, zeropp::bfloat16{})};
}

template <class T>
void measure(collective_rows& rows, const options& o, rank_context& ranks, std::size_t bytes) {
    const int group_size = ranks.nodes().group_size();
    const auto full = std::make_shared<std::vector<T>>(bytes / sizeof(T));
    const auto scratch = std::make_shared<std::vector<std::byte>>();
    std::vector<quantized_case> cases;
    for (const std::string& name : o.quantizers) {
        std::visit([&](const auto& q) { cases.push_back(case_of<T>(q, ranks, full, scratch)); },
                   bench_quantizers::parse(name));
    }
    const std::size_t elements = full->size();
    const double others = static_cast<double>(group_size - 1) / group_size;
    rows.measure({elements * sizeof(T), elements, zeropp::partition(elements, group_size).slice_size(), datatype<T>,
                  sizeof(T), others},
                 native_of(ranks, rows.comm(), elements), cases);
}

}  // namespace

int main(int argc, char** argv) {
    const program_facts program{.name = "secondary_partition_gather_perf",
                                .purpose =
                                    "Times zeropp::secondary_partition_gather, whose group is the node, beside the "
                                    "transport's own all-gather inside nodes and beside the bare exchange of its "
                                    "messages, in turns.",
                                .quantizers = {"bf16", "int8:256"}};
    return launch(argc, argv, program, [&](const options& o, rank_context& ranks) {
        const std::string native = ranks.native_all_gather_name();
        collective_rows rows(program, o, ranks,
                             native.empty() ? "secondary_partition_gather with lossless" : native + " inside nodes");
        for (const std::string& type : o.datatypes) {
            for (const std::size_t bytes : o.sizes()) {
                with_datatype(type, [&]<class T>(T) { measure<T>(rows, o, ranks, bytes); });
            }
        }
        return rows.finish();
    });
}
