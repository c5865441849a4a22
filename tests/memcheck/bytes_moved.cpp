/// \file
/// The collectives once, on a list of tensors, on one tensor of the same total, or not at all: for bytes_moved.cmake,
/// which counts what they read and write.

#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr std::size_t tensors = 64;
constexpr std::size_t elements = 16384;  // of each
constexpr int ranks = 4;

std::vector<zeropp::list_tensor<float, zeropp::host_space>> listed(std::vector<float>& memory) {
    std::vector<zeropp::list_tensor<float, zeropp::host_space>> list;
    const std::size_t n = memory.size() / tensors;
    for (std::size_t t = 0; t != tensors; ++t) list.emplace_back(std::span(memory).subspan(t * n, n));
    return list;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc == 2 ? argv[1] : "";
    if (what != "list" && what != "one" && what != "none") return 2;
    zeropp::run_on_threads(ranks, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const zeropp::host exec;
        const zeropp::block_integer<8, 256> int8;
        std::vector<float> full(tensors * elements, 1.5f), result(full.size()), shard(full.size() / ranks);
        std::vector<std::byte> scratch(4 * full.size() * sizeof(float));
        const auto all = [&](auto& whole, auto& other, auto& own) {
            zeropp::quantized_all_gather(exec, comm, int8, own, other, {}, scratch);
            zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{int8, int8}, whole, own, {},
                                                          scratch);
            zeropp::quantized_all_reduce(exec, comm, zeropp::hops{int8, int8, int8}, whole, other, {}, scratch);
        };
        // The lists are made even where they are not used: that happens once, not in every step.
        const zeropp::tensor_list<float> full_list(comm.topology(), listed(full));
        const zeropp::tensor_list<float> result_list(comm.topology(), listed(result));
        const zeropp::tensor_list<float> shard_list(listed(shard));
        if (what == "list") all(full_list, result_list, shard_list);
        if (what == "one") all(full, result, shard);
    });
}
