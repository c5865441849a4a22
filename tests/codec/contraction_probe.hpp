/// \file
/// The codec's arithmetic in one function, to be compiled more than once. Who defines `zeropp` as another name before
/// gets a copy of the library under that name, so that the linker cannot merge what different options have made of the
/// same functions. For that reason there is no include guard, and the standard headers below must not change with the
/// options: include them first.

#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/stochastic.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace zeropp {

/// Messages, messages of sums and reduced tensors of three contributors, appended to `results`. `values` holds theirs.
template <class From, class To>
void append_codec_results(const std::vector<float>& values, std::vector<std::byte>& results) {
    const std::size_t n = values.size() / 3;
    const From from;
    const auto where = slices::single(n, 0, n);
    const std::size_t bytes = wire_bytes(from, n);
    std::vector<std::byte> messages(3 * bytes);
    for (std::size_t c = 0; c != 3; ++c) {
        codec<host>::write(host{}, from, values.data() + c * n, where, messages.data() + c * bytes);
    }
    std::vector<std::byte> sums(wire_bytes(To{}, n));
    codec<host>::write(host{}, To{}, message_sum{from, messages.data(), 3}, where, sums.data());
    std::vector<float> reduced(n, 0.1f);
    codec<host>::read(host{}, message_sum{from, messages.data(), 3, 3.0f}, where, reduced.data(), {.accumulate = true});
    const auto* const floats = reinterpret_cast<const std::byte*>(reduced.data());
    results.insert(results.end(), messages.begin(), messages.end());
    results.insert(results.end(), sums.begin(), sums.end());
    results.insert(results.end(), floats, floats + n * sizeof(float));
}

/// The additions of products that are the easiest to contract, in loops that vectorise.
template <class Q>
void append_loop_results(const std::vector<float>& values, std::vector<std::byte>& results) {
    const std::size_t n = values.size() / 3;
    typename Q::stats stats;
    for (const float x : values) stats.add(x);
    const auto params = Q{}.fit(stats);
    std::vector<float> loops(2 * n);
    for (std::size_t i = 0; i != n; ++i) loops[i] = product(values[i], values[n + i]) + values[2 * n + i];
    for (std::size_t i = 0; i != n; ++i) {
        loops[n + i] = values[i] + Q{}.decode(static_cast<std::uint32_t>(i) & 15u, params);
    }
    const auto* const floats = reinterpret_cast<const std::byte*>(loops.data());
    results.insert(results.end(), floats, floats + loops.size() * sizeof(float));
}

inline std::vector<std::byte> contraction_results(const std::vector<float>& values) {
    std::vector<std::byte> results;
    append_codec_results<block_integer<8, 256>, block_integer<4, 128, signed_absmax>>(values, results);
    append_codec_results<block_integer<6, 64, asymmetric>, block_integer<4, 128, asymmetric, half>>(values, results);
    append_codec_results<hadamard<block_integer<4, 128, asymmetric>>, stochastic<hadamard<block_integer<4, 128>>>>(
        values, results);
    append_loop_results<block_integer<4, 128>>(values, results);
    append_loop_results<block_integer<4, 128, asymmetric>>(values, results);
    return results;
}

}  // namespace zeropp
