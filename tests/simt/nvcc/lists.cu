#include "shipped.cuh"

namespace shipped {

using int8 = zeropp::block_integer<8, 256>;
using int4 = zeropp::block_integer<4, 128>;
using memory = zeropp::feedback<int8>;

void lists(const stream& s, zeropp::tensor_table<zeropp::bfloat16> halves, zeropp::tensor_table<float> floats,
           const zeropp::list_slices& where, const zeropp::slices& one, std::byte* bytes, const memory& kept) {
    const float mean = 3.0f;
    codec::write(s, int8(), halves, where, bytes);
    codec::write(s, int4(), floats, where, bytes);
    codec::write(s, int8(), halves, where, bytes, kept);
    codec::read(s, zeropp::message_sum{int8(), bytes}, where, halves);
    codec::read(s, zeropp::message_sum{int4(), bytes}, where, floats);
    codec::write(s, int4(), zeropp::message_sum{int8(), bytes, 8}, where, bytes);
    codec::write(s, int8(), zeropp::message_sum{int4(), bytes, 8, mean}, where, bytes);
    codec::write(s, int8(), zeropp::message_sum{int4(), bytes, 8, mean}, one, bytes);
    codec::read(s, zeropp::message_sum{int4(), bytes, 8}, where, halves);
}

}  // namespace shipped
