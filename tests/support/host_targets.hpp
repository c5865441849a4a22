#pragma once
/// \file
/// The host's codec with the instructions of every processor that this one can stand for.

#include <zeropp/codec/host/target.hpp>

namespace zeropp_test {

/// Calls f(target) with the instructions of each target that the processor has.
template <class F>
void on_every_target(F f) {
    const struct restore {
        zeropp::detail::host_target best = zeropp::detail::active_host_target();
        ~restore() { zeropp::detail::active_host_target() = best; }
    } at_the_end;
    for (const auto target : zeropp::detail::host_targets()) {
        zeropp::detail::active_host_target() = target;
        f(target);
    }
}

}  // namespace zeropp_test
