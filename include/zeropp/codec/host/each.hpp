#pragma once
/// \file
/// Runs a function for every element of an array on the host.

#include <zeropp/codec/host/share.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/slices.hpp>

#include <cstddef>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// Calls f(i) for i in [first, first + count), compiled for the instruction set in use.
template <class F>
void each_in_part(std::size_t first, std::size_t count, const F& f) {
    for_each_piece_on_target<piece_size, 8>(count, [=](std::size_t begin, auto n) {
        for (std::size_t i = 0; i != n; ++i) f(first + begin + i);
    });
}

ZEROPP_DETAIL_INLINE_END

/// Calls f(i) for i in [0, n), divided among `threads`, or on this thread if `threads` is null. The type of the
/// execution is no template parameter, so all host executions share one function.
template <class F>
void each_element(std::size_t n, const F& f, const host_threads* threads) {
    const slices all = slices::single(n, 0, n);
    divide(threads, all, [&](const share& mine) {
        for_each_part(all, part_order::tensors, mine,
                      [&](const section_part& part) { each_in_part(part.first, part.count, f); });
    });
}

}  // namespace zeropp::detail
