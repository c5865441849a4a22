#pragma once
/// \file
/// The processor of this machine.

#include <string>

namespace zeropp_bench {

/// The entry `key` of the first processor in /proc/cpuinfo; empty if there is none.
std::string processor(const std::string& key);

/// Features of the processor that the codec's loops use or could use.
std::string features();

/// Makes the codec use the target `wanted`, or the best one if it is empty, and returns its name. Throws
/// std::runtime_error if the processor lacks it.
std::string take_target(const std::string& wanted);

/// Current clock of the core in GHz, from a chain of dependent multiplications. Each takes 3 cycles on AMD's Zen and
/// Intel's larger cores. NaN on other architectures.
double clock_ghz();

}  // namespace zeropp_bench
