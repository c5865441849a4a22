/// \file
/// Encodes a tensor and decodes it, without communication: bytes on the wire, and the largest error.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

/// Encodes and decodes `tensor` and prints bytes and largest error. Returns true if the error is at most `most`.
template <zeropp::quantizer Quantizer>
bool round_trip(const Quantizer& q, const std::vector<float>& tensor, float most) {
    using codec = zeropp::codec<zeropp::host>;
    std::vector<std::byte> message(zeropp::wire_bytes(q, tensor.size()));
    std::vector<float> back(tensor.size());
    const auto whole = zeropp::slices::single(tensor.size(), 0, tensor.size());
    codec::write(zeropp::host{}, q, tensor.data(), whole, message.data());
    codec::read(zeropp::host{}, zeropp::message_sum{q, message.data()}, whole, back.data());

    float worst = 0;
    for (std::size_t i = 0; i != tensor.size(); ++i) worst = std::fmax(worst, std::fabs(back[i] - tensor[i]));
    std::printf("%-22s %6zu bytes  largest error %.6f\n", q.name().str().c_str(), message.size(), worst);
    return worst <= most;
}

}  // namespace

int main() try {
    std::vector<float> tensor(10007);  // not a multiple of a block: the last block is shorter
    for (std::size_t i = 0; i != tensor.size(); ++i) tensor[i] = std::sin(static_cast<float>(i));

    // Values are within [-1, 1], so the step of n bits is about 2 / 2^n. Rounding errs by half a step.
    bool good = round_trip(zeropp::cast_to<float>{}, tensor, 0.0f);
    good &= round_trip(zeropp::cast_to<zeropp::bfloat16>{}, tensor, 0.002f);
    good &= round_trip(zeropp::block_integer<8, 256>{}, tensor, 0.004f);
    good &= round_trip(zeropp::block_integer<6, 128>{}, tensor, 0.017f);
    good &= round_trip(zeropp::block_integer<4, 128, zeropp::asymmetric, zeropp::half>{}, tensor, 0.068f);
    return good ? 0 : 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
