/* The collectives over device memory. Planning is in the host's library. */
#define ZEROPP_C_CUDA
#include "all_reduce.cpp"
#include "communicator.cpp"
#include "gather.cpp"
#include "outer_step.cpp"
#include "reduce.cpp"
#include "replica.cpp"
