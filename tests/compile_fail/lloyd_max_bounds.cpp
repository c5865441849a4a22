// expect: failed.*Levels must be.*failed.*from 2 to 4.*failed.*BlockSize must.*failed.*8 to 65536.*failed.*8 to 65536
#include <zeropp/quantizer/lloyd_max.hpp>

constexpr int one_level = zeropp::lloyd_max<1, 128>::block_size;
constexpr int five_levels = zeropp::lloyd_max<5, 128>::block_size;
constexpr int not_a_power_of_two = zeropp::lloyd_max<2, 100>::block_size;
constexpr int small_block = zeropp::lloyd_max<2, 4>::block_size;
constexpr int large_block = zeropp::lloyd_max<2, 131072>::block_size;
