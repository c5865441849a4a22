// expect: failed.*8 to 256, not above.*failed.*8 to 256.*failed.*8 to 256.*failed.*8 to 256.*failed.*rotated already
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/hadamard.hpp>

using base = zeropp::block_integer<4, 1024>;

constexpr int above_block = zeropp::hadamard<zeropp::block_integer<4, 64>, 128>::hadamard_size;
constexpr int large = zeropp::hadamard<base, 512>::hadamard_size;
constexpr int small = zeropp::hadamard<base, 4>::hadamard_size;
constexpr int not_a_power_of_two = zeropp::hadamard<base, 48>::hadamard_size;
constexpr int rotated = zeropp::hadamard<zeropp::hadamard<base>>::hadamard_size;
