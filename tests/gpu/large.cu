#include "kernels/codec_against_host.hpp"

#include <zeropp/cuda.cuh>

#include <cstddef>
#include <vector>

namespace gpu = zeropp_test::gpu;
using namespace zeropp;

TEST_CASE("kernels: more elements than threads", "[gpu][kernels]") {
    const gpu::owned_stream stream;
    const block_integer<8, 256> q;
    const gpu::layout all{"one slot", slices::single(20'000'003, 0, 20'000'003)};
    const gpu::variation sums{47};  // four contributors, accumulated
    gpu::check_encode<bfloat16>(stream.exec(), q, all, {});
    gpu::check_decode<bfloat16>(stream.exec(), q, all, {});
    gpu::check_reduce_decode<bfloat16>(stream.exec(), q, all, sums);
    gpu::check_reduce_encode(stream.exec(), q, q, all, sums);
}

TEST_CASE("kernels: more elements than 32 bits can count", "[gpu][kernels]") {
    using quantizer = block_integer<8, 256>;
    const quantizer q;
    const std::size_t n = (std::size_t{1} << 32) + 1'000'003;
    // Zeros, but for a tail that begins with a block.
    const std::size_t begin = std::size_t{1} << 32;
    const auto tail = gpu::tensor<bfloat16>(n - begin, 0);

    std::size_t free_bytes = 0;
    std::size_t all_bytes = 0;
    gpu::require_cuda(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
    if (free_bytes < n * sizeof(bfloat16) + wire_bytes(q, n) + (std::size_t{1} << 28)) {
        WARN("left out: the GPU has only " << free_bytes << " bytes free");
        return;
    }
    const gpu::owned_stream stream;
    workspace<device_space> tensor_memory(n * sizeof(bfloat16));
    workspace<device_space> message_memory(wire_bytes(q, n));
    auto* const elements = reinterpret_cast<bfloat16*>(tensor_memory.view().data());
    std::byte* const message = message_memory.view().data();
    const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
        gpu::require_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream.native()), "cudaMemcpyAsync");
        stream.exec().wait();
    };
    gpu::require_cuda(cudaMemsetAsync(elements, 0, begin * sizeof(bfloat16), stream.native()), "cudaMemsetAsync");
    copy(elements + begin, tail.data(), tail.size() * sizeof(bfloat16), cudaMemcpyHostToDevice);
    gpu::on_device::write(stream.exec(), q, elements, slices::single(n, 0, n), message);

    // The tail's blocks are those of a message of its own.
    const wire_layout<quantizer> whole(n);
    const wire_layout<quantizer> part(tail.size());
    std::vector<std::byte> expected(part.bytes);
    gpu::on_host::write(host{}, q, tail.data(), slices::single(tail.size(), 0, tail.size()), expected.data());
    std::vector<std::byte> given(part.bytes);
    copy(given.data(), message + begin, code_bytes<quantizer>(tail.size()), cudaMemcpyDeviceToHost);
    copy(given.data() + part.params_offset, message + whole.params_offset + begin / 256 * params_bytes<quantizer>,
         part.blocks * params_bytes<quantizer>, cudaMemcpyDeviceToHost);
    CHECK(zeropp_test::difference(given, expected) == "");

    gpu::require_cuda(cudaMemsetAsync(elements, 0xa5, n * sizeof(bfloat16), stream.native()), "cudaMemsetAsync");
    gpu::on_device::read(stream.exec(), message_sum{q, message}, slices::single(n, 0, n), elements);
    std::vector<bfloat16> back(tail.size());
    std::vector<bfloat16> back_expected(tail.size());
    copy(back.data(), elements + begin, tail.size() * sizeof(bfloat16), cudaMemcpyDeviceToHost);
    gpu::on_host::read(host{}, message_sum{q, expected.data()}, slices::single(tail.size(), 0, tail.size()),
                       back_expected.data());
    CHECK(zeropp_test::difference(back, back_expected) == "");
    // Elements around 2^31 and before the tail are zeros.
    for (const std::size_t at : {std::size_t{1} << 31, begin - 4096}) {
        std::vector<bfloat16> zeros(4096);
        copy(zeros.data(), elements + at, zeros.size() * sizeof(bfloat16), cudaMemcpyDeviceToHost);
        CHECK(zeropp_test::difference(zeros, std::vector<bfloat16>(4096, bfloat16(0.0f))) == "");
    }
}
