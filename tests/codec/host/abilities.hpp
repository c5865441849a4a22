#pragma once
/// \file
/// What the tests of abilities in the host's codec share: the codec's calls on vectors.

#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>

#include "conformance/codec_laws.hpp"
#include "support/guarded.hpp"

#include <cstddef>
#include <vector>

namespace zeropp_test {

using host_codec = zeropp::codec<zeropp::host>;

/// The messages of a tensor, or of a `difference`.
template <class Q, class Tensor, class Residuals = zeropp::none>
std::vector<std::byte> encoded(const Q& q, const Tensor& tensor, const zeropp::slices& where,
                               const Residuals& residuals = {}) {
    guarded<std::byte> messages(static_cast<std::size_t>(where.slots) * zeropp::wire_bytes(q, where.count), 0xa5);
    host_codec::write(zeropp::host{}, q, tensor, where, messages.data(), residuals);
    const bool written_within = messages.intact();
    CHECK(written_within);
    return messages.values();
}

inline const std::uint8_t* as_uint8(const std::vector<std::byte>& bytes) {
    return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

/// The elements of the tensor that slot s of a cut carries.
inline std::vector<float> carried_values(const cut& c, int s, const std::vector<float>& tensor) {
    std::vector<float> values;
    for (const std::size_t i : c.carried(s)) values.push_back(tensor[i]);
    return values;
}

inline void append(std::vector<std::byte>& bytes, const std::vector<std::uint8_t>& more) {
    const auto converted = as_bytes(more);
    bytes.insert(bytes.end(), converted.begin(), converted.end());
}

}  // namespace zeropp_test
