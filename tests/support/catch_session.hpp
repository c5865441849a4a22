#pragma once
/// \file
/// All of Catch2 behind one function, so that only one file is compiled with it.

namespace zeropp_test {

/// Runs the test cases that the command line selects. Returns 0 if all passed.
int run_catch(int argc, char** argv);

}  // namespace zeropp_test
