/// The model's arithmetic on the host, by itself: it needs the optimiser, and what moves weights and gradients does not.

#include "host_device.hpp"
#include "pass.hpp"

template class zero3_gpt::pass<zero3_gpt::host_device>;
