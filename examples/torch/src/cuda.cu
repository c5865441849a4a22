/* The same collectives over device memory; planning, which touches none, is in the library for the host. */
#include "all_reduce.cpp"
#include "communicator.cpp"
#include "gather.cpp"
#include "reduce.cpp"
#include "replica.cpp"
