#pragma once
/// \file
/// Errors of formats: tensors are encoded to messages and decoded.

#include "accuracy/samples.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/named.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace zeropp_bench {

struct format_accuracy {
    std::string format;
    int block_size = 0;
    /// Includes codes, scales and padding.
    double bits_per_element = 0;
    /// Infinite without errors.
    double sqnr_db = 0;
    double relative_l2 = 0;
    /// Largest error of an element, in steps of its block; with a rotation, in steps of rotated elements. NaN for
    /// formats without a constant step in a block.
    double worst_over_step = std::numeric_limits<double>::quiet_NaN();
    /// Largest error of an element, over the largest magnitude of its original block.
    double worst_over_absmax = 0;
};

/// Measures the formats that have names in the library.
std::vector<format_accuracy> measure_standard_formats(const sample& s);

/// Measures integer formats in blocks of 32, 128, 512 and 2048 with scales in fp32, rotated ones,
/// and formats of bench/convergence.
std::vector<format_accuracy> measure_block_sizes(const sample& s);

/// Measures `q` on `s`. Throws std::runtime_error if a result is not finite.
template <zeropp::quantizer Q>
format_accuracy measure_format(const Q& q, const sample& s) {
    using codec = zeropp::codec<zeropp::host>;
    format_accuracy found{.format = zeropp::short_text(q.name()).str(), .block_size = Q::block_size};
    double signal = 0;
    double noise = 0;
    std::size_t elements = 0;
    std::size_t bytes = 0;
    for (const std::vector<float>& tensor : s.tensors) {
        const std::size_t n = tensor.size();
        const zeropp::slices all = zeropp::slices::single(n, 0, n);
        const zeropp::wire_layout<Q> layout(n);
        std::vector<std::byte> message(zeropp::wire_bytes(q, n));
        std::vector<float> back(n);
        codec::write(zeropp::host{}, q, tensor.data(), all, message.data());
        codec::read(zeropp::host{}, zeropp::message_sum{q, message.data()}, all, back.data());
        elements += n;
        bytes += message.size();
        for (std::size_t b = 0; b != layout.blocks; ++b) {
            const std::size_t begin = b * static_cast<std::size_t>(Q::block_size);
            const std::size_t end = std::min(begin + static_cast<std::size_t>(Q::block_size), n);
            double absmax = 0;
            double worst = 0;
            for (std::size_t i = begin; i != end; ++i) {
                const double x = static_cast<double>(tensor[i]);
                const double off = static_cast<double>(back[i]) - x;
                signal += x * x;
                noise += off * off;
                absmax = std::max(absmax, std::fabs(x));
                worst = std::max(worst, std::fabs(off));
            }
            if (worst > 0) found.worst_over_absmax = std::max(found.worst_over_absmax, worst / absmax);
            if constexpr (requires(const typename Q::params& p) { q.spacing(p); }) {
                typename Q::params params;
                std::memcpy(&params, &message[layout.params_offset + b * sizeof params], sizeof params);
                // std::fmax, because the value starts as NaN.
                found.worst_over_step =
                    std::fmax(found.worst_over_step, worst / static_cast<double>(q.spacing(params)));
            }
        }
    }
    if (!std::isfinite(noise)) throw std::runtime_error(found.format + " on " + s.name + ": a result is not finite");
    found.bits_per_element = 8 * static_cast<double>(bytes) / static_cast<double>(elements);
    found.relative_l2 = std::sqrt(noise / signal);
    found.sqnr_db = noise == 0 ? std::numeric_limits<double>::infinity() : -20 * std::log10(found.relative_l2);
    return found;
}

template <class Names>
struct every_format;
template <class... Q>
struct every_format<zeropp::named_quantizers<Q...>> {
    static std::vector<format_accuracy> measure(const sample& s) { return {measure_format(Q{}, s)...}; }
};

}  // namespace zeropp_bench
