// expect: failed.*block_float: BlockSize must be.*failed.*from 8 to 65536.*failed.*from 8 to 65536
#include <zeropp/quantizer/block_float.hpp>

constexpr int not_a_power_of_two = zeropp::block_float<zeropp::e4m3, 100>::block_size;
constexpr int small_block = zeropp::block_float<zeropp::e4m3, 4>::block_size;
constexpr int large_block = zeropp::block_float<zeropp::e4m3, 131072>::block_size;
