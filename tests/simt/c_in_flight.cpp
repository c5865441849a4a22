/// \file
/// The C library's calls on streams: what they use stays until their work is complete, and they share scratch.

#include "simt/cuda_emulation.hpp"

#include "../../examples/c/src/device_pool.hpp"
#include "../../examples/c/src/in_flight.hpp"
#include "kernels/codec_against_host.hpp"
#include "simt/device.hpp"
#include "simt/echoing_transport.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/cuda.cuh>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/execution/cuda_workspace.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/quantizer/cast_to.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::cuda_stream;
using zeropp::device_space;

namespace {

constexpr std::size_t n = 3000;
constexpr zeropp::cast_to<float> floats;
using list_type = zeropp::tensor_list<float, device_space>;
using memory = zeropp::workspace<device_space>;
constexpr zeropp_c::device_pool pool;

/// Gathers a shard, as the library does: lists are made for the call, and scratch is every call's.
void gather(zeropp_c::in_flight<cuda_stream>& pending, const cuda_stream& exec, auto& comm,
            const simt::device_array<float>& shard, const simt::device_array<float>& full,
            const std::shared_ptr<memory>& scratch) {
    const auto listed = [](const simt::device_array<float>& a) {
        return std::vector<zeropp::list_tensor<float, device_space>>{{a.view()}};
    };
    pending.begin(exec);
    pending.keep(scratch);
    {
        const list_type fulls(comm.topology(), listed(full), exec, pool);
        const list_type shards(listed(shard), exec, pool);
        zeropp::quantized_all_gather(exec, comm, floats, shards, fulls, {}, scratch->view());
    }
    pending.end(exec);
}

}  // namespace

TEST_CASE("C library: tables outlive the kernels that read them, and scratch the calls that use it", "[simt]") {
    const simt::live_objects before = simt::live();
    {
        simt::two_streams on(false);
        const std::vector<float> first = zeropp_test::normal_floats(n / 2, 1);
        const std::vector<float> second = zeropp_test::normal_floats(n / 2, 2);
        const simt::device_array<float> a(first), b(second), full_a(n), full_b(n);
        const std::size_t blocks = simt::live().device_blocks;
        std::optional<zeropp_c::in_flight<cuda_stream>> pending(std::in_place);
        {
            const auto scratch =
                std::make_shared<memory>(zeropp::quantized_all_gather_workspace_bytes(on.comm.topology(), floats, n));
            // On two streams by turns, with the same scratch; the second is waited for alone.
            const auto blocking = [] {
                return simt::calls("cudaMalloc") + simt::calls("cudaFree") + simt::calls("cudaMemcpy") +
                       simt::calls("cudaStreamSynchronize") + simt::calls("cudaEventSynchronize");
            };
            const std::size_t blocked = blocking();
            gather(*pending, on.intra_node.exec(), on.comm, a, full_a, scratch);
            gather(*pending, on.inter_node.exec(), on.comm, b, full_b, scratch);
            CHECK(blocking() == blocked);
        }
        CHECK(simt::pending(on.intra_node.native()) != 0);
        CHECK(simt::live().device_blocks == blocks + 5);  // a table for each list, and the scratch
        on.inter_node.exec().wait();
        CHECK(simt::pending(on.intra_node.native()) == 0);
        CHECK(simt::live().device_blocks == blocks + 1);
        const auto twice = [](std::vector<float> x) {
            x.insert(x.end(), x.begin(), x.end());
            return x;
        };
        CHECK(full_a.read() == twice(first));
        CHECK(full_b.read() == twice(second));
        pending->begin(on.intra_node.exec());
        CHECK(simt::live().device_blocks == blocks);
        gather(*pending, on.intra_node.exec(), on.comm, b, full_a,
               std::make_shared<memory>(zeropp::quantized_all_gather_workspace_bytes(on.comm.topology(), floats, n)));
        pending.reset();  // which waits
        CHECK(simt::live().device_blocks == blocks);
        CHECK(full_a.read() == twice(second));
    }
    CHECK(simt::live() == before);
}

TEST_CASE("codec: messages that kernels cannot load are refused before a kernel runs", "[simt]") {
    const simt::owned_stream stream;
    const simt::device_array<float> tensor(simt::tensor<float>(100, 0));
    memory message(1000);
    const auto all = zeropp::slices::single(100, 0, 100);
    const std::string words =
        "codec: expected messages aligned to 16 bytes, given some that start 4 bytes past a boundary";
    using codec = zeropp::codec<cuda_stream>;
    CHECK_THROWS_WITH(codec::write(stream.exec(), floats, tensor.view().data(), all, message.view().data() + 4), words);
    CHECK_THROWS_WITH(
        codec::read(stream.exec(), zeropp::message_sum{floats, message.view().data() + 4}, all, tensor.view().data()),
        words);
    CHECK(simt::pending(stream.native()) == 0);
}
