// What exact updates add to the kernels: changes counted, encoded and decoded, of a tensor and of tables.
#include "shipped.cuh"

using namespace zeropp;

namespace shipped {

template <class Slices, class Shard, class Replica>
void changes(const stream& s, Shard shard, Replica replica, const Slices& own, const packed_slices<Slices>& stored,
             const changes_layout& layout, std::uint64_t* numbers, std::byte* bytes) {
    codec::count_changes(s, difference{shard, replica}, own, numbers);
    codec::encode_changes(s, difference{shard, replica}, own, layout, numbers, bytes);
    codec::decode_changes(s, bytes, layout, stored, replica, numbers);
}

template void changes(const stream&, const bfloat16*, bfloat16*, const slices&, const packed_slices<slices>&,
                      const changes_layout&, std::uint64_t*, std::byte*);
template void changes(const stream&, const float*, float*, const slices&, const packed_slices<slices>&,
                      const changes_layout&, std::uint64_t*, std::byte*);
template void changes(const stream&, tensor_table<const bfloat16>, tensor_table<bfloat16>, const list_slices&,
                      const packed_slices<list_slices>&, const changes_layout&, std::uint64_t*, std::byte*);
template void changes(const stream&, tensor_table<const float>, tensor_table<float>, const list_slices&,
                      const packed_slices<list_slices>&, const changes_layout&, std::uint64_t*, std::byte*);

}  // namespace shipped
