/// Quantizers with abilities, differences, and error feedback.

#include "gpu/codec_against_host.cuh"

namespace gpu = zeropp_test::gpu;
using namespace zeropp;

namespace {

using four_bits = block_integer<4, 128>;

/// Elements that leave blocks and windows of any size finite.
template <class T>
std::vector<T> ordinary(std::size_t n, std::uint64_t seed, double scale = 1.0) {
    std::vector<T> values;
    for (const float x : zeropp_test::normal_floats(n, seed, scale)) {
        values.push_back(element_traits<T>::from_float(x));
    }
    return values;
}

/// Encoding of ordinary elements whose index in the tensor of all ranks is any number.
template <class T, quantizer Q>
void check_encodings(const Q& q) {
    INFO(short_text(q.name()).str());
    gpu::for_each_case(
        gpu::sizes(Q::block_size), Q::block_size, [&](const cuda_stream& exec, slices where, std::size_t v) {
            where.origin = 13 * v;
            const auto elements = ordinary<T>(where.part.count(), v);
            std::vector<std::byte> expected(static_cast<std::size_t>(where.slots) * wire_bytes(q, where.count));
            const gpu::device_array<T> in(elements, v % 3);
            const gpu::device_array<std::byte> out(expected.size());
            gpu::on_host::write(host{}, q, elements.data(), where, expected.data());
            gpu::on_device::write(exec, q, in.data(), where, out.data());
            exec.wait();
            CHECK(gpu::difference(out.read(), expected) == "");
            CHECK(out.intact());
        });
}

/// Two encodings of a difference with error feedback in place, the first from nothing.
template <class T, class Base, quantizer Storage, quantizer Q>
void check_feedback(const Storage& storage, const Q& q) {
    INFO(short_text(q.name()).str() << " with residuals in " << short_text(storage.name()).str());
    gpu::for_each_case(gpu::sizes(Q::block_size), Q::block_size,
                       [&](const cuda_stream& exec, const slices& where, std::size_t v) {
                           const std::size_t n = where.part.count();
                           const std::size_t slice = where.part.slice_size();
                           const auto slots = static_cast<std::size_t>(where.slots);
                           const auto base = ordinary<Base>(n, 7);
                           const gpu::device_array<Base> less(base);
                           std::vector<std::byte> expected(slots * wire_bytes(q, where.count));
                           std::vector<std::byte> kept(slots * wire_bytes(storage, slice));
                           const gpu::device_array<std::byte> out(expected.size());
                           const gpu::device_array<std::byte> device_kept(kept);
                           for (const bool first : {true, false}) {
                               const auto elements = ordinary<T>(n, v + (first ? 100 : 200));
                               const gpu::device_array<T> in(elements, v % 3);
                               const auto memory = [&](std::byte* at) {
                                   return feedback<Storage>{storage, first ? nullptr : at, at, slice};
                               };
                               gpu::on_host::write(host{}, q, difference{elements.data(), base.data()}, where,
                                                   expected.data(), memory(kept.data()));
                               gpu::on_device::write(exec, q, difference{in.data(), less.data()}, where, out.data(),
                                                     memory(device_kept.data()));
                               exec.wait();
                               CHECK(gpu::difference(out.read(), expected) == "");
                               CHECK(gpu::difference(device_kept.read(), kept) == "");
                               CHECK((out.intact() && device_kept.intact()));
                           }
                       });
}

}  // namespace

TEST_CASE("kernels: rotated elements", "[gpu][kernels]") {
    gpu::check_tensors<bfloat16>(hadamard<four_bits>());
    gpu::check_tensors<half>(hadamard<block_integer<8, 256>, 256>());
    check_encodings<float>(hadamard<block_integer<4, 2048>, 256>());
    gpu::check_sums(hadamard<block_integer<8, 256>, 256>(), hadamard<block_integer<4, 32>, 8>());
}

TEST_CASE("kernels: searched scales, noise, positions, and scales of messages", "[gpu][kernels]") {
    check_encodings<bfloat16>(scale_search<four_bits>());
    check_encodings<bfloat16>(stochastic<hadamard<four_bits>>(0x123456789abcdef0u, 7));
    gpu::check_tensors<bfloat16>(spike_reserving<4, 128>());
    gpu::check_tensors<bfloat16>(nvfp4());
    gpu::check_sums(spike_reserving<2, 32>(), stochastic<four_bits>(5, 1));
}

TEST_CASE("kernels: codes of one bit and of few levels", "[gpu][kernels]") {
    gpu::check_tensors<bfloat16>(hadamard<lloyd_max<2, 128, zeropp::unbiased>, 128>());
    gpu::check_sums(hadamard<lloyd_max<4, 128>, 128>(), lloyd_max<3, 32>());
}

TEST_CASE("kernels: error feedback of differences", "[gpu][kernels]") {
    check_feedback<bfloat16, bfloat16>(block_integer<8, 128>(), four_bits());
    check_feedback<float, bfloat16>(lossless<float>(), hadamard<four_bits>());
    check_feedback<float, bfloat16>(lossless<bfloat16>(), nvfp4());
    check_feedback<half, half>(block_integer<8, 65536>(), block_integer<4, 65536>());
}

TEST_CASE("kernels: a small slice of those with abilities", "[gpu][slice]") {
    gpu::check_tensors<bfloat16>(hadamard<four_bits>(), {9, 129, 3001});
    check_encodings<bfloat16>(nvfp4());
}
