#pragma once

#include "host_device.hpp"
#include "pass.hpp"

namespace zero3_gpt {

/// The model's arithmetic on the host. host_pass.cpp compiles it, with optimisation; code that only moves weights and
/// gradients does not need any.
extern template class pass<host_device>;

}  // namespace zero3_gpt
