#!/usr/bin/env bash
# Runs the tests of the host's codec, executions, the thread transport and the collectives on it under valgrind's
# memcheck, installing what is missing with apt-get. Some ten minutes on two cores:
#
#   tests/memcheck.sh [--build-dir DIR]
#
#   --build-dir DIR   where to build (default: build/memcheck)
#
# Valgrind tells programs that the processor has no AVX-512, which it does not know, so the codec runs its loops for AVX2.
# Allocations are not counted, nor made to fail: valgrind brings its own operator new.
#
# Exit status: 0 no error and no leak, 1 there are some or a test failed, 2 something to run this is missing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
folder build_dir "$root/build/memcheck"
parse_options "$@"

require_packages cmake ninja-build g++ catch2 valgrind
# g++, because valgrind before 3.22 does not read the debug information that clang writes.
cmake --preset release -S "$root" -B "$build_dir" -DCMAKE_CXX_COMPILER=g++ -DCMAKE_CXX_FLAGS_RELEASE="-O1 -g" \
    -DZEROPP_BUILD_EXAMPLES=OFF -DZEROPP_BUILD_BENCH=OFF -DZEROPP_ENABLE_MPI=OFF -DZEROPP_TEST_MEMCHECK=ON
cmake --build "$build_dir" -j "$(nproc)" \
    --target bytes_moved test_execution test_transport test_codec test_codec.optimised test_collective
ctest --test-dir "$build_dir" -L memcheck --output-on-failure --no-tests=error -j 2 || exit 1
