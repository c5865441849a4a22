/* The same library over device memory. */
#include "all_reduce.cpp"
#include "communicator.cpp"
#include "gather.cpp"
#include "reduce.cpp"
#include "volume.cpp"
