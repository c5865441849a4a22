// expect: hadamard: the base quantizer must not be rotated already, or scale whole messages
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/hadamard.hpp>

struct message_scaled : zeropp::block_integer<4, 64> {
    message_scaled scaled_for(float) const noexcept { return *this; }
};

constexpr int size = zeropp::hadamard<message_scaled>::hadamard_size;
