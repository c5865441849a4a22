#include "simt/collectives.hpp"
#include "simt/device.hpp"

#include <zeropp/codec/cuda.cuh>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/collective/quantized_all_to_all.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace zeropp_test::simt {

std::vector<counted_calls> calls_of_collectives(const make_transport& make) {
    using T = zeropp::bfloat16;
    using zeropp::device_space;
    const ranks_and_nodes ranks{"2 x 2", {2, 2}};
    const std::size_t n = 4096;
    const zeropp::block_integer<8, 256> eight_bits;
    const zeropp::block_integer<4, 128> four_bits;
    const zeropp::hadamard<zeropp::block_integer<4, 128>> rotated;
    const zeropp::hops hops{eight_bits, four_bits};
    const zeropp::hops all_hops{eight_bits, four_bits, four_bits};
    std::vector<counted_calls> table;
    std::optional<call_count> count;
    const launch_log not_run(false);
    on_ranks(ranks, "counted calls", [&](zeropp::thread_transport& world) {
        zeropp::communicator comm(ranks.topology, make(world));
        const owned_stream first, second;
        const device_array<T> full(n), result(n), shard(n / 4);
        const device_array<float> masters(n / 4);
        const device_array<std::byte> scratch(1 << 20), stored(1 << 16), kept(1 << 16);
        using tensors = std::vector<zeropp::list_tensor<T, device_space>>;
        const zeropp::tensor_list<T, device_space> list(comm.topology(), tensors{{full.view()}});
        const zeropp::tensor_list<float, device_space> own(
            std::vector<zeropp::list_tensor<float, device_space>>{{masters.view()}});
        zeropp::secondary_partition<zeropp::block_integer<8, 256>, device_space> secondary(eight_bits, n, 2,
                                                                                           comm.index(), stored.view());
        secondary.store(first.exec(), full.view(), 1);
        zeropp::secondary_replica<zeropp::cast_to<T>, device_space, zeropp::block_integer<8, 256>> replica(
            comm.topology(), comm.rank(), list, kept.view(), eight_bits);
        for (const int chunks : {1, 2}) {
            const zeropp::pipeline<zeropp::cuda_stream> exec(first.exec(), chunks == 1 ? first.exec() : second.exec());
            const auto add = [&](const std::string& collective, auto call) {
                call();  // makes events, and a replica's first weights
                first.exec().wait();
                meet(world);
                if (comm.rank() == 0) count.emplace();
                meet(world);
                call();
                meet(world);
                const std::string name = '`' + collective + '`' + (chunks == 1 ? "" : ", two chunks on two streams");
                if (comm.rank() == 0) table.push_back({name, count->made()});
                meet(world);
                first.exec().wait();
            };
            add("quantized_all_gather", [&] {
                quantized_all_gather(exec, comm, eight_bits, shard.view(), full.view(), {.chunks = chunks},
                                     scratch.view());
            });
            add("hierarchical_quantized_reduce_scatter", [&] {
                hierarchical_quantized_reduce_scatter(exec, comm, hops, full.view(), shard.view(), {.chunks = chunks},
                                                      scratch.view());
            });
            add("quantized_all_reduce", [&] {
                quantized_all_reduce(exec, comm, all_hops, list, list,
                                     {.chunks = chunks, .algorithm = zeropp::all_reduce_algorithm::two_shot},
                                     scratch.view());
            });
            add("quantized_update", [&] {
                quantized_update(exec, comm, rotated, own, replica.to(replica.version().value_or(0) + 1, list),
                                 {.chunks = chunks}, scratch.view());
            });
            if (chunks != 1) continue;
            add("secondary_partition_gather",
                [&] { secondary_partition_gather(first.exec(), comm, secondary, 1, full.view(), scratch.view()); });
            add("quantized_all_to_all", [&] {
                quantized_all_to_all(first.exec(), comm, eight_bits, full.view(), result.view(), scratch.view());
            });
        }
    });
    return table;
}

}  // namespace zeropp_test::simt
