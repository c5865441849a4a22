#!/usr/bin/env bash
# Prints how many lines of include/ the tests execute, by folder and in total, installing what is missing with apt-get:
#
#   tests/coverage.sh [--build-dir DIR] [--missed]
#
#   --build-dir DIR   where to build (default: build/coverage)
#   --missed          also list every line that no test executes
#
# What runs: all unit tests, those on MPI, and the GPU path's kernels on the processor (tests/simt). What counts: every
# line with code, as clang sees it, once, whichever instance of a template executes it. Not counted: lines that no
# compilation contains, which are those for nvcc alone (#ifdef __CUDACC__ and the like) and, without a CUDA toolkit or
# nccl.h, the headers that need them; and templates that nothing instantiates. Headers that have no line counted are
# named. Counted and never executed: functions that only the compiler evaluates, such as those of codec/cuda/tuning.hpp.
#
# Exit status: 0 at least 95 % of the lines, 1 fewer or a test failed, 2 something to run this is missing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
folder build_dir "$root/build/coverage"
flag missed
parse_options "$@"

require_packages cmake ninja-build catch2 openmpi-bin libopenmpi-dev nlohmann-json3-dev libcli11-dev libopenblas-dev \
    libboost-context-dev
clang=$(choose_clang)
[ -n "$clang" ] || { echo "no clang from 16 on is available here" >&2; exit 2; }
require_packages "clang-$clang" "libclang-rt-$clang-dev" "llvm-$clang"
PATH=/usr/lib/llvm-$clang/bin:$PATH

cmake --preset coverage -S "$root" -B "$build_dir" -DCMAKE_CXX_COMPILER="clang++-$clang"
cmake --build "$build_dir" -j "$(nproc)" --target zeropp_test_programs

# One file for each program, which all its processes add to.
counts=$build_dir/counts
rm -rf "$counts"
mkdir "$counts"
LLVM_PROFILE_FILE=$counts/%m.profraw ctest --test-dir "$build_dir" -L '^(unit|mpi)$' --output-on-failure \
    --no-tests=error -j 2

llvm-profdata merge -o "$counts/all.profdata" "$counts"/*.profraw
objects=()
while IFS= read -r program; do objects+=(-object "$program"); done < <(find "$build_dir/tests" -name 'test_*' -type f -executable)
llvm-cov export -format=lcov -instr-profile="$counts/all.profdata" "${objects[@]:1}" "$root/include" >"$counts/lines.info"

# Every header, then every line that was counted: SF:FILE and DA:LINE,TIMES.
{
    find "$root/include/zeropp" -name '*.hpp' -printf 'HEADER:%p\n' -o -name '*.cuh' -printf 'HEADER:%p\n' | sort
    grep -E '^(SF|DA):' "$counts/lines.info"
} | awk -v missed="$missed" '
    function short(path) { sub(/.*\/include\/zeropp\//, "", path); return path }
    function row(name, hit, lines) {
        return sprintf("%-16s %6d of %6d lines  %6.2f %%", name, hit, lines, 100 * hit / lines)
    }
    /^HEADER:/ { headers[++n] = short(substr($0, 8)) }
    /^SF:/ { file = short(substr($0, 4)); folder = file; if (!sub(/\/[^\/]*$/, "", folder)) folder = "entry headers" }
    /^DA:/ {
        split(substr($0, 4), line, ",")
        counted[file] = 1
        lines[folder]++
        all++
        if (line[2] > 0) { hit[folder]++; all_hit++ } else { misses[++m] = file ":" line[1] }
    }
    END {
        if (all == 0) { print "no line of include/ was counted"; exit 1 }
        for (i = 1; i <= n; i++) if (!(headers[i] in counted)) bare = bare " " headers[i]
        if (bare != "") print "\nNo line counted in:" bare
        if (missed == "yes") { print "\nMissed:"; for (i = 1; i <= m; i++) print "  " misses[i] }
        print ""
        fflush()
        for (f in lines) print row(f, hit[f], lines[f]) | "sort"
        close("sort")
        print row("include/", all_hit, all)
        if (100 * all_hit < 95 * all) { print "FAILED: less than 95 %"; exit 1 }
    }'
