#include "library.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

using namespace zeropp_c;

namespace {

/// Runs call(the replica_of<T>, T{}).
template <class Call>
void with_replica(const zeropp_replica& replica, Call call) {
    with_element(replica.element, [&]<class T>(T) { call(replica.memory.as<replica_of<T>>(), T{}); });
}

/// Returns the next version, equal on all ranks; none if all have replicas of one version, and no rank's shards are
/// `changed`. Empties the replicas if their versions differ, so that the next update sends whole weights. Each rank
/// sends 8 bytes, not counted, and waits for the others, not for the stream.
template <class Replica>
std::optional<std::uint64_t> next_version(zeropp_communicator& communicator, Replica& kept, bool changed) {
    std::vector<std::uint64_t> stated(static_cast<std::size_t>(communicator.comm.size()));
    const std::uint64_t version = kept.version().value_or(0);
    const std::uint64_t own = 2 * version + (changed || version == 0 ? 1 : 0);
    communicator.channel.all_gather(zeropp::host{}, reinterpret_cast<const std::byte*>(&own),
                                    reinterpret_cast<std::byte*>(stated.data()), sizeof own);
    const auto [lowest, highest] = std::ranges::minmax(stated);
    if (lowest == highest && highest % 2 == 0) return std::nullopt;
    if (lowest / 2 != highest / 2) kept.invalidate();
    return highest / 2 + 1;
}

}  // namespace

zeropp_status zeropp_replica_create(zeropp_communicator* communicator, zeropp_element element,
                                    const zeropp_tensor* fulls, size_t count, zeropp_replica** replica) {
    return status_of([&] {
        with_element(element, [&]<class T>(T) {
            auto& comm = communicator->comm;
            const zeropp::tensor_list<T, space> full(comm.topology(), listed<T>(fulls, count));
            auto memory =
                lasting::made<replica_of<T>>(replica_of<T>::storage_bytes(comm.topology(), full, comm.rank()),
                                             [&](zeropp::view<std::byte, space> storage) {
                                                 return replica_of<T>(comm.topology(), comm.rank(), full, storage);
                                             });
            *replica = new zeropp_replica{std::move(memory), element, true};
        });
    });
}

void zeropp_replica_destroy(zeropp_replica* replica) { delete replica; }

size_t zeropp_replica_bytes(const zeropp_replica* replica) { return replica->memory.bytes; }

void zeropp_replica_invalidate(zeropp_replica* replica) {
    with_replica(*replica, [](auto& kept, auto) { kept.invalidate(); });
}

void zeropp_replica_unchanged(zeropp_replica* replica) { replica->shards_changed = false; }

zeropp_status zeropp_update_gather(zeropp_communicator* communicator, zeropp_replica* replica, const char* format,
                                   const zeropp_tensor* shards, const zeropp_tensor* fulls, size_t count,
                                   void* stream) {
    // The statement is of this call, also if it fails.
    const bool changed = std::exchange(replica->shards_changed, true);
    return status_of_collective(*communicator, __func__, stream, [&](const execution& exec) {
        communicator->pending.keep(replica->memory.memory);
        const auto quantizer = difference_formats::parse(format);
        with_replica(*replica, [&]<class T>(replica_of<T>& kept, T) {
            auto& comm = communicator->comm;
            const auto& full = communicator->list<T>(fulls, count);
            const auto& shard = communicator->list<T>(shards, count, true);
            // Before the comparison: an error behind it on one rank would leave the others waiting.
            const auto scratch = std::visit(
                [&]<class Q>(const Q& q) {
                    if constexpr (!zeropp::difference_codec<execution, Q, T>) {
                        throw zeropp::precondition_error("zeropp_update_gather",
                                                         "elements of 16 bits for exact differences",
                                                         std::string(zeropp::element_traits<T>::name));
                    }
                    return communicator->scratch_of(std::max(
                        zeropp::quantized_update_gather_workspace_bytes(comm.topology(), q, kept.stored_as(), full),
                        zeropp::secondary_partition_gather_workspace_bytes(comm.topology(), kept.stored_as(), full)));
                },
                quantizer);
            // Before versions are exchanged: a rank in another call would take them for its data.
            communicator->compare(
                {"zeropp_update_gather",
                 kept.elements(),
                 zeropp::element_traits<T>::name,
                 zeropp::agreed_text(std::string_view(format)),
                 {}},
                zeropp::detail::update_problem<execution>(comm, zeropp::detail::operand_of<space>(shard),
                                                          kept.to(kept.version().value_or(0) + 1, full)));
            const auto version = next_version(*communicator, kept, changed);
            if (!version) {
                return zeropp::secondary_partition_gather(exec, comm, kept, *kept.version(), full, scratch);
            }
            // One node sends no differences, and copies whole weights without loss.
            if (comm.topology().groups() == 1) kept.invalidate();
            std::visit(
                [&]<class Q>(const Q& q) {
                    if constexpr (zeropp::difference_codec<execution, Q, T>) {
                        zeropp::quantized_update(exec, comm, q, shard, kept.to(*version, full), {}, scratch);
                    }
                },
                quantizer);
        });
    });
}

zeropp_status zeropp_replica_gather(zeropp_communicator* communicator, const zeropp_replica* replica,
                                    const zeropp_tensor* fulls, size_t count, void* stream) {
    return status_of_collective(*communicator, __func__, stream, [&](const execution& exec) {
        communicator->pending.keep(replica->memory.memory);
        with_replica(*replica, [&]<class T>(const replica_of<T>& kept, T) {
            auto& comm = communicator->comm;
            const auto& full = communicator->list<T>(fulls, count);
            const std::uint64_t version = kept.version().value_or(0);
            const auto scratch = communicator->scratch_of(
                zeropp::secondary_partition_gather_workspace_bytes(comm.topology(), kept.stored_as(), full));
            // With several nodes, the gather itself compares nothing.
            std::string problem = kept.place_problem(comm.topology(), comm.rank());
            if (problem.empty()) problem = kept.tensors_problem(zeropp::detail::operand_of<space>(full));
            if (!kept.version()) problem = "expected a replica after an update, given an empty one";
            communicator->compare({"zeropp_replica_gather",
                                   kept.elements(),
                                   zeropp::element_traits<T>::name,
                                   {},
                                   zeropp::agreed_text("version ").append(version)},
                                  problem);
            zeropp::secondary_partition_gather(exec, comm, kept, version, full, scratch);
        });
    });
}
