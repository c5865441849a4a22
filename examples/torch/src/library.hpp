#pragma once

#include "zeropp_torch.h"

#include <zeropp/transport/callback.hpp>
#include <zeropp/zeropp.hpp>

#ifdef __CUDACC__
#include <zeropp/cuda.cuh>
#endif

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace zeropp_torch {

/// Where tensors are: what the library is compiled for says it.
#ifdef __CUDACC__
using execution = zeropp::cuda_stream;
inline execution on(void* stream) { return execution(static_cast<cudaStream_t>(stream)); }
#else
using execution = zeropp::host_threads;
inline execution on(void* threads) { return threads == nullptr ? execution(1) : *static_cast<execution*>(threads); }
#endif
using space = execution::space;

using fp32 = zeropp::lossless<float>;
using fp16 = zeropp::lossless<zeropp::half>;
using bf16 = zeropp::lossless<zeropp::bfloat16>;
using int8 = zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::bfloat16>;
using int6 = zeropp::block_integer<6, 128, zeropp::symmetric, zeropp::bfloat16>;
using int4 = zeropp::block_integer<4, 128, zeropp::signed_extreme, zeropp::bfloat16>;
using int8_rotated = zeropp::hadamard<int8>;
using int4_rotated = zeropp::hadamard<int4>;
using int2_rotated = zeropp::hadamard<zeropp::block_integer<2, 64, zeropp::signed_extreme, zeropp::bfloat16>>;

/// What a gather can put on the wire.
using gather_formats =
    zeropp::named_quantizers<fp32, fp16, bf16, zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::half>, int8,
                             int6, int4>;

/// What differences of weights can.
using difference_formats = zeropp::named_quantizers<int4_rotated, int2_rotated>;

/// What a reduction can: each pair is an instance of the collectives.
template <class Inside, class Across>
using hops = zeropp::hops<Inside, Across>;
using reduce_formats = zeropp::named_hops<hops<fp32, fp32>, hops<fp16, fp16>, hops<bf16, bf16>, hops<int8, int8>,
                                          hops<int8, int6>, hops<int8, int4>, hops<int6, int6>, hops<int4, int4>,
                                          hops<int8_rotated, int4_rotated>, hops<int8_rotated, int2_rotated>>;

/// A callback that has failed: whoever brought it knows why.
struct callback_failure : std::exception {
    const char* what() const noexcept override { return "a callback has failed"; }
};

/// Keeps the words of an error for zt_error.
void keep_error(const std::string& words) noexcept;

/// What call() comes to as a status: C has no exceptions.
template <class Call>
zt_status status_of(Call call) noexcept {
    try {
        call();
        return zt_success;
    } catch (const callback_failure&) {
        return zt_callback_failed;
    } catch (const std::exception& e) {
        keep_error(e.what());
    } catch (...) {
        keep_error("an unknown exception");
    }
    return zt_failure;
}

/// call(T{}) for the element type.
template <class Call>
void with_element(zt_element element, Call call) {
    switch (element) {
    case zt_float32:
        return call(float{});
    case zt_float16:
        return call(zeropp::half{});
    case zt_bfloat16:
        return call(zeropp::bfloat16{});
    }
    throw zeropp::precondition_error("zeropp_torch", "an element type from 0 to 2", std::to_string(element));
}

/// call(hops, T{}) for the formats of these names and the element type.
template <class Call>
void with_hops(std::string_view inside, std::string_view across, zt_element element, Call call) {
    const auto formats = reduce_formats::parse(inside, across);
    with_element(element, [&]<class T>(T) { std::visit([&](const auto& hops) { call(hops, T{}); }, formats); });
}

template <class T>
using replica_of = zeropp::secondary_replica<zeropp::lossless<T>, space>;

template <class Hops>
using feedback_of =
    zeropp::error_feedback<typename Hops::inside_type, typename Hops::across_type, zeropp::residuals_in_int8, space>;

template <class T>
std::vector<zeropp::list_tensor<T, space>> listed(const zt_tensor* tensors, std::size_t count) {
    std::vector<zeropp::list_tensor<T, space>> list;
    list.reserve(count);
    for (std::size_t t = 0; t != count; ++t) {
        list.emplace_back(zeropp::view<T, space>(static_cast<T*>(tensors[t].data), tensors[t].elements),
                          zeropp::division{.row = tensors[t].row});
    }
    return list;
}

}  // namespace zeropp_torch

struct zt_communicator {
    using transport_type = zeropp::counting<zeropp::callback_transport, zeropp::two_level>;

    zt_communicator(const zeropp::two_level& nodes, const zeropp::callback_transport& ranks)
        : uncounted(ranks), world(ranks, nodes), comm(nodes, world),
          versions((1 + static_cast<std::size_t>(nodes.size())) * sizeof(std::uint64_t)) {}

    /// Scratch of so many bytes, kept for the next call.
    zeropp::view<std::byte, zeropp_torch::space> scratch_of(std::size_t bytes) {
        if (scratch.view().size() < bytes) scratch = zeropp::workspace<zeropp_torch::space>(bytes);
        return scratch.view();
    }

    zeropp::callback_transport uncounted;
    transport_type world;
    zeropp::communicator<zeropp::two_level, transport_type> comm;
    zeropp::workspace<zeropp_torch::space> scratch{0};
    zeropp::workspace<zeropp_torch::space> versions;  // of this rank's replica, and of all ranks'
};

struct zt_feedback {
    /// A feedback_of the hops of that name.
    std::shared_ptr<void> memory;
    std::string hops;
    zeropp::workspace<zeropp_torch::space> storage;
};

struct zt_replica {
    /// A replica_of the element type.
    std::shared_ptr<void> memory;
    zt_element element;
    zeropp::workspace<zeropp_torch::space> storage;
};
