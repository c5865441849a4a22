// Any bytes as those of a peer: of the call that `checked` compares, of an acknowledgement, and of the sizes and
// messages of exact differences. They are an error in words, or say what this rank says.

#include "fuzz/reader.hpp"
#include "support/hostile_peer.hpp"

#include <zeropp/transport/failure.hpp>
#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

/// Updates a replica with a peer's shard, of two chunks, by exact differences.
void update_with(const zeropp_test::hostile_peer& peer) {
    using zeropp::bfloat16;
    using zeropp_test::require;
    constexpr std::size_t own = 4096 + 300;
    const zeropp::two_level nodes(2, 1);
    zeropp::communicator comm(nodes, peer);
    using replica_type = zeropp::secondary_replica<zeropp::cast_to<bfloat16>, zeropp::host_space>;
    zeropp::workspace<zeropp::host_space> storage(replica_type::storage_bytes(nodes, 2 * own));
    replica_type replica(nodes, 0, 2 * own, storage.view());
    std::vector<bfloat16> shard(own, bfloat16(0.5f)), full(2 * own);
    zeropp::quantized_update(zeropp::host(), comm, zeropp::exact_differences(), shard, replica.to(1));
    for (std::size_t i = 0; i < own; i += 11) shard[i].bits = static_cast<std::uint16_t>(shard[i].bits + i);
    try {
        zeropp::quantized_update(zeropp::host(), comm, zeropp::exact_differences(), shard, replica.to(2, full),
                                 {.chunks = 2});
        require(std::memcmp(full.data(), shard.data(), own * sizeof(bfloat16)) == 0, "this rank's weights");
    } catch (const zeropp::error& e) {
        require(std::string_view(e.what()).size() < 256, "an error in few words");
        require(!replica.version(), "a replica without a version");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    zeropp_test::hostile_peer peer;
    for (std::size_t i = 0; i != size; ++i) peer.bytes.push_back(std::byte(data[i]));
    if (size == 0) peer.bytes.push_back(std::byte{0});

    zeropp::checked<zeropp_test::hostile_peer> transport(peer);
    try {
        transport.begin({"quantized_all_gather", 100, "fp32", zeropp::agreed_text("int8:256"), {}}, {});
    } catch (const zeropp::precondition_error& e) {
        zeropp_test::require(std::string_view(e.what()).size() < 2048, "an error of the length of its parts");
    }

    if (size > 64) update_with({.bytes = peer.bytes, .step = 64});

    zeropp::detail::acknowledgement given;
    std::memcpy(static_cast<void*>(&given), data, std::min(size, sizeof given));
    zeropp_test::require(given.operation.text().size() < 512, "an operation in words");
    try {
        given.require_done();
        zeropp_test::require(given.outcome == zeropp::detail::acknowledgement::verdict::done, "success");
    } catch (const zeropp::error& e) {
        zeropp_test::require(std::string_view(e.what()).size() <= sizeof given.cause, "a cause of the length it has");
    }
    return 0;
}
