#!/usr/bin/env bash
# The GPU path as nvcc compiles it, without a GPU, for three generations: the PTX of every file of tests/kernels, of lists,
# grids, outer steps and collectives is executed, and the machine code of shipped kernels inspected. Some thirty minutes of
# processor time:
#
#   tests/ptx/run.sh [--build-dir DIR] [--mutants N]
#
#   --build-dir DIR   where to build (default: build/ptx)
#   --mutants N       also mutates N instructions of the PTX of int8, int4, sums and abilities, and says which are noticed
#
# Ends with the counts of each program. Exit status: 0 all passed, 1 something failed, 77 nvcc is not here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
folder build_dir "$root/build/ptx"
value mutants 0
parse_options "$@"
cd "$root"
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    echo "nvcc is not here"
    exit 77
fi
require_packages cmake ninja-build g++ catch2 libboost-context-dev python3

files=$(cd tests/kernels && printf '%s;' *.cpp)
cmake --preset release -S . -B "$build_dir" -DZEROPP_WERROR=ON -DZEROPP_TEST_MACHINE_CODE=ON \
    -DZEROPP_TEST_GPU_ARCHITECTURES="80;90;100" -DZEROPP_TEST_PTX_FILES="${files//.cpp/}lists;grids;outer_step;collectives"
cmake --build "$build_dir" --target zeropp_ptx_programs -j "$(nproc)"
programs=$build_dir/tests/ptx
rm -f "$programs"/*.counts
failed=0
ctest --test-dir "$build_dir" -R '^(ptx|nvcc)' --output-on-failure --no-tests=error -j 2 || failed=1

printf '\n%-22s %10s %8s %9s %14s %9s  %s\n' program assertions kernels launches 'lane instr.' mma 'PTX reached'
for counts in "$programs"/ptx.*.counts; do
    test=$(basename "$counts" .counts)
    assertions=$(sed -n "/ Testing: $test\$/,/^<end of output>/s/^All tests passed (\([0-9]*\) assertions.*/\1/p" \
        "$build_dir/Testing/Temporary/LastTest.log")
    read -r kernels launches instructions mma reached all <"$counts"
    printf '%-22s %10s %8s %9s %14s %9s  %s of %s\n' "${test#ptx.}" "${assertions:-FAILED}" "$kernels" "$launches" \
        "$instructions" "$mma" "$reached" "$all"
done
if [ "$mutants" -ne 0 ]; then
    echo
    tests/ptx/faults.py mutants --count "$mutants" "$programs"/test_ptx_{int8,int4,sums,abilities} || failed=1
fi
exit $failed
