#pragma once
/// \file
/// The host codec with the instructions of each target that this processor can run.

#include <zeropp/codec/host/target.hpp>

#include "support/catch.hpp"

namespace zeropp_test {

/// Calls f() once for each target of this processor, with that target active; failures name it.
template <class F>
void on_every_target(F f) {
    const struct restore {
        zeropp::detail::host_target best = zeropp::detail::active_host_target();
        ~restore() { zeropp::detail::active_host_target() = best; }
    } at_the_end;
    for (const auto target : zeropp::detail::host_targets()) {
        zeropp::detail::active_host_target() = target;
        CAPTURE(static_cast<int>(target));
        f();
    }
}

}  // namespace zeropp_test
