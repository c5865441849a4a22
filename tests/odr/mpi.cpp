#include <zeropp/mpi.hpp>
#include <zeropp/zeropp.hpp>
