#include "host_pass.hpp"

template class zero3_gpt::pass<zero3_gpt::host_device>;
