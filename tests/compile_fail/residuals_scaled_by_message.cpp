// expect: feedback: Storage must not scale whole messages, for residuals are kept in parts
#include <zeropp/codec/codec.hpp>
#include <zeropp/quantizer/block_integer.hpp>

struct message_scaled : zeropp::block_integer<8, 64> {
    message_scaled scaled_for(float) const noexcept { return *this; }
};

constexpr auto bytes = sizeof(zeropp::feedback<message_scaled>);
