#include "library.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

using namespace zeropp_torch;

namespace {

/// call(the replica, T{}).
template <class Call>
void with_replica(const zt_replica& replica, Call call) {
    with_element(replica.element, [&]<class T>(T) { call(*static_cast<replica_of<T>*>(replica.memory.get()), T{}); });
}

/// Returns the next version, the same on all ranks. Empties the replicas of all ranks unless they are at one version:
/// the next update then sends whole weights. The ranks exchange 8 bytes each, which are not counted, and wait for them.
template <class Replica>
std::uint64_t next_version(zt_communicator& communicator, const execution& exec, Replica& kept) {
    std::vector<std::uint64_t> versions(static_cast<std::size_t>(communicator.comm.size()));
    const std::uint64_t own = kept.version().value_or(0);
    zeropp::workspace<space>& memory = communicator.versions;
    memory.assign(&own, sizeof own);
    std::byte* const all = memory.view().data() + sizeof own;
    communicator.uncounted.all_gather(exec, memory.view().data(), all, sizeof own);
    exec.copy_to_host(versions.data(), all, versions.size() * sizeof own);
    exec.wait();
    const auto [lowest, highest] = std::ranges::minmax(versions);
    if (lowest != highest) kept.invalidate();
    return highest + 1;
}

}  // namespace

zt_status zt_replica_create(zt_communicator* communicator, zt_element element, const zt_tensor* fulls, size_t count,
                            zt_replica** replica) {
    return status_of([&] {
        with_element(element, [&]<class T>(T) {
            auto& comm = communicator->comm;
            const zeropp::tensor_list<T, space> full(comm.topology(), listed<T>(fulls, count));
            zeropp::workspace<space> storage(replica_of<T>::storage_bytes(comm.topology(), full));
            auto memory = std::make_shared<replica_of<T>>(comm.topology(), comm.rank(), full, storage.view());
            *replica = new zt_replica{std::move(memory), element, std::move(storage)};
        });
    });
}

void zt_replica_destroy(zt_replica* replica) { delete replica; }

size_t zt_replica_bytes(const zt_replica* replica) { return replica->storage.view().size(); }

void zt_replica_invalidate(zt_replica* replica) {
    with_replica(*replica, [](auto& kept, auto) { kept.invalidate(); });
}

zt_status zt_update_gather(zt_communicator* communicator, zt_replica* replica, const char* format,
                           const zt_tensor* shards, const zt_tensor* fulls, size_t count, void* stream) {
    return status_of([&] {
        const auto quantizer = difference_formats::parse(format);
        with_replica(*replica, [&]<class T>(replica_of<T>& kept, T) {
            auto& comm = communicator->comm;
            const zeropp::tensor_list<T, space> full(comm.topology(), listed<T>(fulls, count));
            const zeropp::tensor_list<T, space> shard(listed<T>(shards, count));
            const std::uint64_t version = next_version(*communicator, on(stream), kept);
            std::visit(
                [&](const auto& q) {
                    const std::size_t bytes =
                        zeropp::quantized_update_gather_workspace_bytes(comm.topology(), q, kept.stored_as(), full);
                    zeropp::quantized_update_gather(on(stream), comm, q, shard, kept, version, full, {},
                                                    communicator->scratch_of(bytes));
                },
                quantizer);
        });
    });
}

zt_status zt_replica_gather(zt_communicator* communicator, const zt_replica* replica, const zt_tensor* fulls,
                            size_t count, void* stream) {
    return status_of([&] {
        with_replica(*replica, [&]<class T>(const replica_of<T>& kept, T) {
            auto& comm = communicator->comm;
            const zeropp::tensor_list<T, space> full(comm.topology(), listed<T>(fulls, count));
            const std::size_t bytes =
                zeropp::secondary_partition_gather_workspace_bytes(comm.topology(), kept.stored_as(), full);
            zeropp::secondary_partition_gather(on(stream), comm, kept, kept.version().value_or(0), full,
                                               communicator->scratch_of(bytes));
        });
    });
}
