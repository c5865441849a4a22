// Exact differences of elements of 16 bits and of masters, of one tensor and of lists, as in updates of replicas.
#include "shipped.cuh"

using namespace zeropp;

namespace shipped {

template <class Slices, class Tensor, class Replica>
void exact(const stream& s, Tensor tensor, Replica replica, const Slices& own, const packed_slices<Slices>& stored,
           std::byte* room, std::byte* messages, std::uint64_t* size) {
    codec::write_exact(s, difference{tensor, replica}, own, room, size);
    codec::place_exact(s, own, room, messages, 16);
    codec::read_exact(s, messages, 16, stored, replica);
}

template void exact(const stream&, const bfloat16*, bfloat16*, const slices&, const packed_slices<slices>&, std::byte*,
                    std::byte*, std::uint64_t*);
template void exact(const stream&, const half*, half*, const slices&, const packed_slices<slices>&, std::byte*,
                    std::byte*, std::uint64_t*);
template void exact(const stream&, const float*, bfloat16*, const slices&, const packed_slices<slices>&, std::byte*,
                    std::byte*, std::uint64_t*);
template void exact(const stream&, tensor_table<const bfloat16>, tensor_table<bfloat16>, const list_slices&,
                    const packed_slices<list_slices>&, std::byte*, std::byte*, std::uint64_t*);
template void exact(const stream&, tensor_table<const float>, tensor_table<bfloat16>, const list_slices&,
                    const packed_slices<list_slices>&, std::byte*, std::byte*, std::uint64_t*);

}  // namespace shipped
