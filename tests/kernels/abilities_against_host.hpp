#pragma once
/// \file
/// Differences of tensors and error feedback in the codec of CUDA streams, against the codec of the host: the same
/// bits.

#include "kernels/codec_against_host.hpp"

#include <cstddef>
#include <vector>

namespace zeropp_test::kernels {

/// Only encoding, of elements whose index in the tensor of all ranks is any number.
template <class T, zeropp::quantizer Q>
void check_encodings(const Q& q, const std::vector<std::size_t>& all = sizes(Q::block_size)) {
    INFO(zeropp::short_text(q.name()).str() << " on " << zeropp::element_traits<T>::name);
    for_each_case(Q::block_size, all, [&](const cuda_stream& exec, layout l, const variation& v) {
        l.where.origin = 13 * v.n;
        check_encode<T>(exec, q, l, v);
    });
}

/// Encoding of differences to a base that is another tensor.
template <class T, class Base, zeropp::quantizer Q>
void check_differences(const Q& q) {
    INFO(zeropp::element_traits<T>::name << " less " << zeropp::element_traits<Base>::name);
    for_each_case(
        Q::block_size, sizes(Q::block_size), [&](const cuda_stream& exec, const layout& l, const variation& v) {
            const auto elements = tensor<T>(l.where.part.count(), 0, v.salt());
            const auto base = tensor<Base>(l.where.part.count(), 1, v.salt());
            std::vector<std::byte> expected(static_cast<std::size_t>(l.where.slots) * wire_bytes(q, l.where.count));
            const device_array<T> in(elements, v.shift());
            const device_array<Base> less(base, v.n / 3 % 2);
            const device_array<std::byte> out(expected.size());
            on_host::write(zeropp::host{}, q, zeropp::difference{elements.data(), base.data()}, l.where,
                           expected.data());
            on_device::write(exec, q, zeropp::difference{in.data(), less.data()}, l.where, out.data());
            exec.wait();
            REQUIRE(message_difference(q, l.where, out.read(), expected) == "");
            REQUIRE((out.intact() && in.intact() && less.intact()));
        });
}

/// Runs encode(codec, execution, message, feedback) on host and device, from the same residuals: the same messages, and
/// the same residuals afterwards, wherever they are held and kept.
template <zeropp::quantizer Storage, zeropp::quantizer Q, class Encode>
void check_residuals(const cuda_stream& exec, const Storage& storage, const Q& q, const layout& l, const variation& v,
                     Encode encode) {
    // Each slot's residuals are those of its whole slice, of which a chunk changes a part.
    zeropp::slices whole = l.where;
    whole.begin = 0;
    whole.count = l.where.part.slice_size();
    const std::vector<float> lost = normal_floats(l.where.part.count(), v.n, 0.1);
    const std::size_t residual_bytes = static_cast<std::size_t>(l.where.slots) * wire_bytes(storage, whole.count);
    std::vector<std::byte> held(residual_bytes);
    on_host::write(zeropp::host{}, storage, lost.data(), whole, held.data());
    const bool in_place = v.n % 3 == 0;
    const bool from_nothing = v.n % 3 == 1;
    std::vector<std::byte> kept = in_place ? held : std::vector<std::byte>(residual_bytes, std::byte{0x5a});
    std::vector<std::byte> expected(static_cast<std::size_t>(l.where.slots) * wire_bytes(q, l.where.count));

    const device_array<std::byte> device_held(held);
    const device_array<std::byte> device_kept(kept);
    const device_array<std::byte> out(expected.size());
    const auto memory = [&](const std::byte* from, std::byte* to) {
        return zeropp::feedback<Storage>{storage, in_place ? to : from_nothing ? nullptr : from, to, whole.count};
    };
    encode(on_host(), zeropp::host{}, expected.data(), memory(held.data(), kept.data()));
    encode(on_device(), exec, out.data(), memory(device_held.data(), device_kept.data()));
    exec.wait();
    REQUIRE(message_difference(q, l.where, out.read(), expected) == "");
    REQUIRE(message_difference(storage, whole, device_kept.read(), kept) == "");
    REQUIRE((out.intact() && device_kept.intact() && device_held.read() == held));
}

/// Encoding of a tensor with error feedback.
template <class T, zeropp::quantizer Storage, zeropp::quantizer Q>
void check_feedback(const Storage& storage, const Q& q) {
    INFO(zeropp::short_text(q.name()).str() << " with residuals in " << zeropp::short_text(storage.name()).str());
    for_each_case(
        Q::block_size, sizes(Q::block_size), [&](const cuda_stream& exec, const layout& l, const variation& v) {
            const auto elements = tensor<T>(l.where.part.count(), 0, v.salt());
            const device_array<T> in(elements, v.shift());
            check_residuals(exec, storage, q, l, v,
                            [&]<class Codec>(Codec, const auto& on, std::byte* messages, const auto& memory) {
                                const T* const tensor = std::is_same_v<Codec, on_host> ? elements.data() : in.data();
                                Codec::write(on, q, tensor, l.where, messages, memory);
                            });
        });
}

/// Encoding of differences to a base, with error feedback.
template <class T, class Base, zeropp::quantizer Storage, zeropp::quantizer Q>
void check_feedback_of_differences(const Storage& storage, const Q& q) {
    INFO(zeropp::short_text(q.name()).str() << " with residuals in " << zeropp::short_text(storage.name()).str());
    for_each_case(
        Q::block_size, sizes(Q::block_size), [&](const cuda_stream& exec, const layout& l, const variation& v) {
            const auto elements = tensor<T>(l.where.part.count(), 0, v.salt());
            const auto base = tensor<Base>(l.where.part.count(), 1, v.salt());
            const device_array<T> in(elements, v.shift());
            const device_array<Base> less(base);
            check_residuals(exec, storage, q, l, v,
                            [&]<class Codec>(Codec, const auto& on, std::byte* messages, const auto& memory) {
                                constexpr bool host = std::is_same_v<Codec, on_host>;
                                const T* const tensor = host ? elements.data() : in.data();
                                const Base* const of = host ? base.data() : less.data();
                                Codec::write(on, q, zeropp::difference{tensor, of}, l.where, messages, memory);
                            });
        });
}

/// Encoding of sums of messages with error feedback.
template <zeropp::quantizer From, zeropp::quantizer Storage, zeropp::quantizer Q>
void check_feedback_of_sums(const From& from, const Storage& storage, const Q& q) {
    INFO("sums of " << zeropp::short_text(from.name()).str() << " to " << zeropp::short_text(q.name()).str());
    for_each_case(
        Q::block_size, sizes(Q::block_size), [&](const cuda_stream& exec, const layout& l, const variation& v) {
            const int contributors = v.contributors();
            const std::vector<std::byte> messages = host_messages<float>(from, l.where, contributors, v.salt());
            const device_array<std::byte> in(messages);
            check_residuals(
                exec, storage, q, l, v, [&]<class Codec>(Codec, const auto& on, std::byte* sums, const auto& memory) {
                    const std::byte* const source = std::is_same_v<Codec, on_host> ? messages.data() : in.data();
                    Codec::write(on, q, zeropp::message_sum{from, source, contributors}, l.where, sums, memory);
                });
        });
}

}  // namespace zeropp_test::kernels
