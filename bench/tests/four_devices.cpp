// A device for each of a benchmark's four ranks.

#include "simt/cuda_doubles.hpp"

namespace {

struct four_devices {
    four_devices() { zeropp_test::simt::set_devices(4); }
} const made_before_main;

}  // namespace
