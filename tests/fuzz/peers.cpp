// Any bytes as those of a peer: of the call that `checked` compares, and of an acknowledgement. They are an error in
// words, or say what this rank says.

#include "fuzz/reader.hpp"
#include "support/hostile_peer.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/failure.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

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
