#include <zeropp/codec/host/target.hpp>

#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/scale_search.hpp>
#include <zeropp/quantizer/stochastic.hpp>

#include "support/catch.hpp"
#include "support/samples.hpp"

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_test;

/// Four contributors' messages, the message of their sum, what that decodes to and the sum over contributors, with the
/// instructions of `target`.
template <class Q>
std::vector<std::byte> results_on(zeropp::detail::host_target target, const std::vector<float>& tensor) {
    constexpr int contributors = 4;
    const std::size_t n = tensor.size() / contributors;
    const zeropp::slices where = zeropp::slices::single(n, 0, n);
    const zeropp::host exec;
    const Q q;
    const std::size_t bytes = zeropp::wire_bytes(q, n);
    std::vector<std::byte> results((contributors + 1) * bytes + 2 * n * sizeof(zeropp::half));
    std::byte* const sum = results.data() + contributors * bytes;
    std::vector<zeropp::half> elements(2 * n);

    using codec = zeropp::codec<zeropp::host>;
    const auto best = std::exchange(zeropp::detail::active_host_target(), target);
    for (std::size_t c = 0; c != contributors; ++c) {
        codec::encode(exec, q, tensor.data() + c * n, where, results.data() + c * bytes);
    }
    codec::reduce_encode(exec, q, results.data(), contributors, where, q, sum);
    codec::decode(exec, q, sum, where, elements.data());
    codec::reduce_decode(exec, q, results.data(), contributors, where, elements.data() + n, {.divisor = 3.0f});
    zeropp::detail::active_host_target() = best;
    std::memcpy(sum + bytes, elements.data(), elements.size() * sizeof(zeropp::half));
    return results;
}

template <class Q>
void check_targets() {
    const std::vector<float> tensor = mixed_floats(4 * 5003, 91);
    const std::vector<std::byte> expected = results_on<Q>(zeropp::detail::host_target::baseline, tensor);
    for (const auto target : zeropp::detail::host_targets()) {
        CAPTURE(static_cast<int>(target), Q::code_bits);
        CHECK(results_on<Q>(target, tensor) == expected);
    }
}

}  // namespace

TEST_CASE("every instruction set of the processor gives the same bits", "[codec][host_target]") {
    check_targets<zeropp::block_integer<8, 256>>();
    check_targets<zeropp::block_integer<4, 128, zeropp::signed_extreme, zeropp::bfloat16>>();
    check_targets<zeropp::block_integer<6, 64, zeropp::asymmetric, zeropp::half>>();
    using shifted = zeropp::block_integer<4, 128, zeropp::asymmetric>;
    check_targets<zeropp::stochastic<zeropp::hadamard<zeropp::scale_search<shifted>>>>();
}
