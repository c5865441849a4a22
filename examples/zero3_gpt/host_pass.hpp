#pragma once

#include "host_device.hpp"
#include "pass.hpp"

namespace zero3_gpt {

/// The model's arithmetic on the host, compiled once in host_pass.cpp: it needs the optimiser, and the code that moves
/// weights and gradients does not.
extern template class pass<host_device>;

}  // namespace zero3_gpt
