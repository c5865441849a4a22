/// What the doubles of NCCL report that would be a hang or wrong data with NCCL, so that no test passes for want of it.

#include "simt/nccl_ranks.hpp"

#include <zeropp/core/element.hpp>
#include <zeropp/transport/threads.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace simt = zeropp_test::simt;

namespace {

struct ids {
    static ncclUniqueId unique_id() {
        ncclUniqueId id{};
        ncclGetUniqueId(&id);
        return id;
    }
};

/// Runs work(comm, stream, memory) on two ranks, four numbers of memory each, waits for the streams, and returns the
/// fault.
template <class Work>
std::string fault_of(Work work) {
    simt::on_ranks({"two ranks", {1, 2}}, "a fault", [&](zeropp::thread_transport& world) {
        const simt::owned_stream stream;
        const simt::device_array<int> memory(std::vector<int>{1, 2, 3, 4});
        ncclComm_t comm = nullptr;
        ncclCommInitRank(&comm, 2, simt::shared_id<ids>(world), world.rank());
        work(comm, world.rank(), stream.native(), memory.data());
        cudaStreamSynchronize(stream.native());
        simt::meet(world);
        ncclCommAbort(comm);
    });
    const std::string fault = simt::device_fault();
    simt::recover();
    return fault;
}

}  // namespace

TEST_CASE("nccl doubles: a call waits for its peers, and what comes is there no sooner", "[simt][nccl][doubles]") {
    std::vector<int> early(2), late(2);
    std::vector<cudaError_t> states(2);
    const std::string fault = fault_of([&](ncclComm_t comm, int rank, cudaStream_t stream, int* memory) {
        const auto r = static_cast<std::size_t>(rank);
        cudaMemsetAsync(memory + rank, 0, sizeof(int), stream);
        ncclAllGather(memory + rank, memory + 2, 1, ncclInt32, comm, stream);
        simt::read_device(&early[r], memory + 2, sizeof(int));
        states[r] = cudaStreamQuery(stream);
        cudaStreamSynchronize(stream);
        simt::read_device(&late[r], memory + 2, sizeof(int));
    });
    CHECK(fault == "");
    CHECK(states == std::vector<cudaError_t>(2, cudaErrorNotReady));
    CHECK(early == std::vector<int>{3, 3});
    CHECK(late == std::vector<int>{0, 0});
}

TEST_CASE("nccl doubles: ranks that disagree", "[simt][nccl][doubles]") {
    CHECK(fault_of([](ncclComm_t comm, int rank, cudaStream_t stream, int* memory) {
              ncclAllGather(memory, memory + 2, rank == 0 ? 4 : 3, ncclUint8, comm, stream);
          }) == "call 0, ncclAllGather: rank 0 sends 4 bytes to rank 1, which receives 3 bytes");
    CHECK(fault_of([](ncclComm_t comm, int rank, cudaStream_t stream, int* memory) {
              ncclAllGather(memory, memory + 2, 1, ncclInt32, comm, stream);
              if (rank == 0) ncclAllGather(memory, memory + 2, 1, ncclInt32, comm, stream);
              if (rank == 1) ncclSend(memory, 1, ncclInt32, 0, comm, stream);
          }) == "call 1 is ncclAllGather on rank 0 and a group on rank 1");
    CHECK(fault_of([](ncclComm_t comm, int rank, cudaStream_t stream, int* memory) {
              ncclGroupStart();
              if (rank == 0) ncclSend(memory, 1, ncclInt32, 1, comm, stream);
              ncclSend(memory, 1, ncclInt32, rank, comm, stream);
              ncclRecv(memory + 1, 1, ncclInt32, rank, comm, stream);
              ncclGroupEnd();
          }) == "call 0, a group: rank 0 sends 4 bytes to rank 1, which receives nothing");
    CHECK(fault_of([](ncclComm_t comm, int rank, cudaStream_t stream, int* memory) {
              ncclGroupStart();
              ncclSend(memory, 1, ncclInt32, rank, comm, stream);
              ncclRecv(memory + 1, 1, ncclInt32, rank, comm, stream);
              if (rank == 0) ncclRecv(memory + 2, 2, ncclInt32, 1, comm, stream);
              ncclGroupEnd();
          }) == "call 0, a group: rank 1 sends nothing to rank 0, which receives 8 bytes");
}

TEST_CASE("nccl doubles: communicators after their end, and groups that stay open", "[simt][nccl][doubles]") {
    const auto alone = [](auto work) {
        const simt::owned_stream stream;
        const simt::device_array<int> memory(4);
        ncclComm_t comm = nullptr;
        ncclCommInitRank(&comm, 1, ids::unique_id(), 0);
        work(comm, stream.native(), memory.data());
        cudaStreamSynchronize(stream.native());
    };
    const auto fault = [] {
        const std::string text = simt::device_fault();
        simt::recover();
        return text;
    };
    alone([](ncclComm_t comm, cudaStream_t stream, int* memory) {
        ncclCommAbort(comm);
        CHECK(ncclAllGather(memory, memory, 1, ncclInt32, comm, stream) == ncclInvalidUsage);
    });
    CHECK(fault() == "ncclAllGather: the communicator has been destroyed or aborted");
    alone([](ncclComm_t comm, cudaStream_t, int*) {
        CHECK(ncclCommDestroy(comm) == ncclSuccess);
        CHECK(ncclCommDestroy(comm) == ncclInvalidUsage);
    });
    CHECK(fault() == "ncclCommDestroy: the communicator has been destroyed or aborted");
    alone([](ncclComm_t comm, cudaStream_t, int*) {
        ncclGroupStart();
        CHECK(ncclCommAbort(comm) == ncclInvalidUsage);
        ncclGroupEnd();
        CHECK(ncclCommAbort(comm) == ncclSuccess);
        CHECK(ncclGroupEnd() == ncclInvalidUsage);
    });
    CHECK(fault() == "ncclCommAbort in a group that is still open");
    alone([](ncclComm_t comm, cudaStream_t stream, int* memory) {
        simt::notice(comm, ncclRemoteError);
        CHECK(ncclAllGather(memory, memory, 1, ncclInt32, comm, stream) == ncclSuccess);
        cudaStreamSynchronize(stream);
        CHECK(ncclCommAbort(comm) == ncclSuccess);
    });
    CHECK(fault() == "rank 0 waits for ever in call 0, on a communicator that has failed");
    alone([](ncclComm_t comm, cudaStream_t stream, int* memory) {
        std::vector<int> host(4);
        CHECK(ncclAllGather(host.data(), memory, 1, ncclInt32, comm, stream) == ncclInvalidArgument);
        CHECK(ncclSend(memory, 1, ncclInt32, 1, comm, stream) == ncclInvalidArgument);
        CHECK(ncclAllGather(memory, memory, 2, ncclInt32, comm, stream) == ncclSuccess);
        CHECK(ncclAlltoAll(memory, memory + 1, 2, ncclInt32, comm, stream) == ncclInvalidUsage);
        CHECK(ncclCommDestroy(comm) == ncclSuccess);
    });
    CHECK(fault() == "ncclAlltoAll: its buffers overlap");
    CHECK(simt::live_communicators() == 0);
}

TEST_CASE("nccl doubles: a rank that leaves is missed", "[simt][nccl][doubles]") {
    CHECK(fault_of([](ncclComm_t comm, int rank, cudaStream_t stream, int* memory) {
              if (rank == 0) ncclAllGather(memory, memory + 2, 1, ncclInt32, comm, stream);
              if (rank == 1) ncclCommDestroy(comm);
          }) == "rank 0 waits for ever in call 0 for rank 1, which has left");
    CHECK(simt::live_communicators() == 0);
}

TEST_CASE("nccl doubles: a reduce-scatter leaves each rank its part of the sum, in its element type",
          "[simt][nccl][doubles]") {
    std::vector<zeropp::bfloat16> sums(2);
    const std::string fault = fault_of([&](ncclComm_t comm, int rank, cudaStream_t stream, int* memory) {
        const float mine = rank == 0 ? 256.0f : 1.0f;  // 257 is no bfloat16
        const std::vector<zeropp::bfloat16> parts{zeropp::bfloat16(mine), zeropp::bfloat16(3.0f)};
        simt::write_device(memory, parts.data(), 2 * sizeof(zeropp::bfloat16));
        CHECK(ncclReduceScatter(memory, memory + 2, 1, ncclInt32, ncclSum, comm, stream) == ncclInvalidArgument);
        CHECK(ncclReduceScatter(memory, memory + 2, 1, ncclBfloat16, ncclMax, comm, stream) == ncclInvalidArgument);
        ncclReduceScatter(memory, memory + 2, 1, ncclBfloat16, ncclSum, comm, stream);
        cudaStreamSynchronize(stream);
        simt::read_device(&sums[static_cast<std::size_t>(rank)], memory + 2, sizeof(zeropp::bfloat16));
    });
    CHECK(fault == "");
    CHECK(static_cast<float>(sums[0]) == 256.0f);
    CHECK(static_cast<float>(sums[1]) == 6.0f);
    CHECK(fault_of([](ncclComm_t comm, int, cudaStream_t stream, int* memory) {
              ncclReduceScatter(memory, memory + 1, 1, ncclFloat32, ncclSum, comm, stream);
          }) == "ncclReduceScatter: its buffers overlap");
}
