#include "shipped.cuh"

namespace shipped {

using int8 = zeropp::block_integer<8, 256>;
using int4 = zeropp::block_integer<4, 128>;
using memory = zeropp::feedback<int8>;

void lists(const stream& s, zeropp::tensor_table<zeropp::bfloat16> halves, zeropp::tensor_table<float> floats,
           const zeropp::list_slices& where, const zeropp::slices& one, std::byte* bytes, const memory& kept) {
    const zeropp::divided_by mean{3.0f};
    codec::encode(s, int8(), halves, where, bytes);
    codec::encode(s, int4(), floats, where, bytes);
    codec::encode(s, int8(), halves, where, bytes, kept);
    codec::decode(s, int8(), bytes, where, halves);
    codec::decode(s, int4(), bytes, where, floats);
    codec::reduce_encode(s, int8(), bytes, 8, where, int4(), bytes);
    codec::reduce_encode(s, int4(), bytes, 8, where, int8(), bytes, zeropp::no_feedback{}, mean);
    codec::reduce_encode(s, int4(), bytes, 8, one, int8(), bytes, zeropp::no_feedback{}, mean);
    codec::reduce_decode(s, int4(), bytes, 8, where, halves, {});
}

}  // namespace shipped
