// What updates of replicas add to the kernels: differences between tables of tensors, and slices stored one behind the
// other, read and added to. And the elements of an outer step.
#include "shipped.cuh"

#include <zeropp/local_steps/outer_optimizer.hpp>
#include <zeropp/quantizer/hadamard.hpp>

using namespace zeropp;

namespace shipped {

using int2 = hadamard<block_integer<2, 64, signed_absmax, bfloat16>>;
using int4 = block_integer<4, 128, signed_absmax, bfloat16>;
using weights = cast_to<bfloat16>;

template <class Slices, class Masters, class Replica>
void updates(const stream& s, Masters masters, Replica replica, const Slices& own, const packed_slices<Slices>& stored,
             std::byte* bytes) {
    const epilogue add = detail::add_difference;
    codec::write(s, int2(), difference{masters, replica}, own, bytes);
    codec::write(s, int4(), difference{masters, replica}, own, bytes);
    codec::read(s, message_sum{int2(), bytes}, stored, replica, add);
    codec::read(s, message_sum{int4(), bytes}, stored, replica, add);
    // Whole weights, and what goes through a quantizer inside the node.
    codec::write(s, weights(), masters, own, bytes);
    codec::write(s, int4(), replica, stored, bytes);
}

template void updates(const stream&, const float*, bfloat16*, const slices&, const packed_slices<slices>&, std::byte*);
template void updates(const stream&, tensor_table<const float>, tensor_table<bfloat16>, const list_slices&,
                      const packed_slices<list_slices>&, std::byte*);

/// Elements of an outer step.
template <class T>
void outer_steps(const stream& s, std::size_t n, T* weights, float* state) {
    codec::each(s, n, detail::outer_start<T, 1>{weights, state, state, n});
    codec::each(s, n, detail::outer_difference<T>{weights, state, state});
    codec::each(s, n, detail::outer_update<T, nesterov>{{}, {.alpha = 0.5f}, state, state, n, state, weights});
}

template void outer_steps(const stream&, std::size_t, float*, float*);
template void outer_steps(const stream&, std::size_t, bfloat16*, float*);

}  // namespace shipped
