#include "support/nccl_ranks.hpp"

#include "support/bare_messages.hpp"

#include <zeropp/nccl.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp_bench {

namespace {

void require_nccl(ncclResult_t code, const char* call) {
    if (code != ncclSuccess) throw zeropp::nccl_error(call, code, "");
}

/// NCCL's collectives. Calls block until their work is complete, like all contestants.
class nccl_native final : public native_collectives {
public:
    explicit nccl_native(zeropp::nccl_transport transport) : transport_(std::move(transport)) {}

    void all_gather(native_format format, const void* send, void* recv, std::size_t count) override {
        require_nccl(ncclAllGather(send, recv, count, type(format), transport_.native(), stream_.exec().native()),
                     "ncclAllGather");
        stream_.exec().wait();
    }

    void reduce_scatter(native_format format, const void* send, void* recv, std::size_t count) override {
        require_nccl(
            ncclReduceScatter(send, recv, count, type(format), ncclSum, transport_.native(), stream_.exec().native()),
            "ncclReduceScatter");
        stream_.exec().wait();
    }

    void all_reduce(native_format format, const void* send, void* recv, std::size_t count) override {
        require_nccl(
            ncclAllReduce(send, recv, count, type(format), ncclSum, transport_.native(), stream_.exec().native()),
            "ncclAllReduce");
        stream_.exec().wait();
    }

    void all_to_all(native_format format, const void* send, void* recv, std::size_t count) override {
        const std::size_t bytes = count * (format == native_format::fp32 ? 4 : 2);
        require_nccl(ncclGroupStart(), "ncclGroupStart");
        for (int r = 0; r != transport_.size(); ++r) {
            const std::size_t part = static_cast<std::size_t>(r) * bytes;
            require_nccl(ncclSend(static_cast<const std::byte*>(send) + part, count, type(format), r,
                                  transport_.native(), stream_.exec().native()),
                         "ncclSend");
            require_nccl(ncclRecv(static_cast<std::byte*>(recv) + part, count, type(format), r, transport_.native(),
                                  stream_.exec().native()),
                         "ncclRecv");
        }
        require_nccl(ncclGroupEnd(), "ncclGroupEnd");
        stream_.exec().wait();
    }

private:
    static ncclDataType_t type(native_format format) {
        return format == native_format::fp32 ? ncclFloat32 : ncclBfloat16;
    }

    zeropp::nccl_transport transport_;
    owned_stream stream_;
};

/// A bare exchange as one group of sends and receives.
class nccl_messages {
public:
    nccl_messages(bare_messages messages, ncclComm_t world)
        : messages_(std::move(messages)), world_(world), send_memory_(messages_.send_bytes()),
          receive_memory_(messages_.receive_bytes()) {}

    void move() {
        const cudaStream_t stream = stream_.exec().native();
        require_nccl(ncclGroupStart(), "ncclGroupStart");
        for (const bare_messages::message& m : messages_.all()) {
            require_nccl(ncclSend(send_memory_.view().data() + m.send_offset, m.bytes, ncclUint8, m.to, world_, stream),
                         "ncclSend");
            require_nccl(
                ncclRecv(receive_memory_.view().data() + m.receive_offset, m.bytes, ncclUint8, m.from, world_, stream),
                "ncclRecv");
        }
        require_nccl(ncclGroupEnd(), "ncclGroupEnd");
        stream_.exec().wait();
    }

private:
    bare_messages messages_;
    ncclComm_t world_;
    cuda_place::array<std::byte> send_memory_;
    cuda_place::array<std::byte> receive_memory_;
    owned_stream stream_;
};

class nccl_rank final : public ranks_on<cuda_place> {
public:
    /// Makes the rank's GPU the calling thread's current device.
    explicit nccl_rank(const gpu_rank& rank)
        : ranks_on(rank.nodes, rank.control), own_process_(rank.own_process), transport_(connect(rank.gpu)) {}

    std::string transport_name() const override { return "nccl"; }
    bool speaks_for_process() const override { return own_process_ || rank() == 0; }
    std::string native_all_gather_name() const override { return "ncclAllGather"; }
    std::string native_reduce_scatter_name() const override { return "ncclReduceScatter"; }
    std::string native_all_reduce_name() const override { return "ncclAllReduce"; }
    std::string native_all_to_all_name() const override { return "ncclSend and ncclRecv"; }

    cuda_place::transport world() override {
        return cuda_place::transport(std::make_shared<zeropp::nccl_transport>(transport_.split(everyone())));
    }

    std::shared_ptr<native_collectives> native(std::span<const int> members) override {
        return std::make_shared<nccl_native>(transport_.split(members));
    }

    std::vector<std::function<void()>> bare_exchanges(const route& hops) override {
        const auto messages = std::make_shared<nccl_messages>(bare_messages(rank(), hops), transport_.native());
        return {[messages] { messages->move(); }};
    }

private:
    zeropp::nccl_transport connect(int gpu) {
        zeropp::detail::require_cuda(cudaSetDevice(gpu), "cudaSetDevice");
        ncclUniqueId id{};
        if (rank() == 0) id = zeropp::nccl_transport::unique_id();
        return zeropp::nccl_transport::create(gather(id).front(), size(), rank());
    }

    bool own_process_;
    zeropp::nccl_transport transport_;
};

int gpus_here() {
    int gpus = 0;
    // Without a driver or a GPU the call fails.
    return cudaGetDeviceCount(&gpus) == cudaSuccess ? gpus : 0;
}

}  // namespace

gpu_work on_nccl(std::function<int(const options&, ranks_on<cuda_place>&)> work) {
    return {gpus_here, [work](const options& o, const gpu_rank& rank) {
                nccl_rank ranks(rank);
                return work(o, ranks);
            }};
}

}  // namespace zeropp_bench
