#include <zeropp/codec/host_target.hpp>

#include <zeropp/codec/host_message.hpp>
#include <zeropp/quantizer/block_integer.hpp>

#include "support/catch.hpp"
#include "support/samples.hpp"

#include <cstddef>
#include <vector>

namespace {

using namespace zeropp_test;

/// A message of four contributors' sum, through every loop of the codec, on one target.
template <class Q>
std::vector<std::byte> message_on(zeropp::detail::host_target target, const std::vector<float>& tensor) {
    constexpr int contributors = 4;
    const std::size_t n = tensor.size() / contributors;
    const zeropp::wire_layout<Q> layout(n);
    std::vector<std::byte> messages(contributors * layout.bytes);
    std::vector<std::byte> sum(layout.bytes);
    zeropp::detail::run_on_target(target, [&] {
        for (std::size_t c = 0; c != contributors; ++c) {
            const auto load = [&](std::size_t begin, auto, float*) { return tensor.data() + c * n + begin; };
            zeropp::detail::encode_message(Q(), layout, n, load, messages.data() + c * layout.bytes);
        }
        const auto load = [&](std::size_t begin, auto some, float* buffer) {
            zeropp::detail::sum_elements(Q(), layout, messages.data(), layout.bytes, contributors, begin, some, buffer);
            return buffer;
        };
        zeropp::detail::encode_message(Q(), layout, n, load, sum.data());
    });
    messages.insert(messages.end(), sum.begin(), sum.end());
    return messages;
}

template <class Q>
void check_targets() {
    const std::vector<float> tensor = mixed_floats(4 * 5003, 91);
    const std::vector<std::byte> expected = message_on<Q>(zeropp::detail::host_target::baseline, tensor);
    for (const auto target : zeropp::detail::host_targets()) {
        CAPTURE(static_cast<int>(target), Q::code_bits);
        CHECK(message_on<Q>(target, tensor) == expected);
    }
}

}  // namespace

TEST_CASE("every instruction set of the processor gives the same bits", "[codec][host_target]") {
    check_targets<zeropp::block_integer<8, 256>>();
    check_targets<zeropp::block_integer<4, 128, zeropp::signed_extreme, zeropp::bfloat16>>();
    check_targets<zeropp::block_integer<6, 64, zeropp::asymmetric, zeropp::half>>();
}
