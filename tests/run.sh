#!/usr/bin/env bash
# Builds and runs all tests on a bare Debian or Ubuntu machine, installing what is missing with apt-get:
#
#   tests/run.sh [--quick] [--build-dir DIR]
#
#   --quick           only the first of the four stages
#   --build-dir DIR   where to build (default: build/tests)
#
# Stage 1  g++, optimised: all tests, examples and consumer projects
# Stage 2  clang, AddressSanitizer and UndefinedBehaviorSanitizer: all unit tests
# Stage 3  clang, ThreadSanitizer: the tests that have threads
# Stage 4  clang, libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer: each fuzz target for a minute. For longer:
#          cmake --preset fuzz -D ZEROPP_FUZZ_SECONDS=3600, build, ctest --preset fuzz -j
#
# Warnings are errors in all of them. Exit status: 0 all passed, 1 a stage failed, 2 something to run them is missing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/cmake/require_packages.sh"

quick=no
build_dir=$root/build/tests
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=yes ;;
    --build-dir)
        [ $# -ge 2 ] || { echo "--build-dir needs a directory" >&2; exit 2; }
        mkdir -p "$2"
        build_dir=$(cd "$2" && pwd)
        shift
        ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done

require_packages cmake ninja-build g++ catch2 openmpi-bin libopenmpi-dev nlohmann-json3-dev libcli11-dev libopenblas-dev \
    libxxhash-dev libboost-context-dev iproute2 python3

if ! cmake_version=$(cmake --version 2>/dev/null | sed -n '1s/^cmake version //p') || [ -z "$cmake_version" ] ||
    [ "$(printf '3.25\n%s\n' "$cmake_version" | sort -V | head -n 1)" != 3.25 ]; then
    echo "CMake 3.25 or newer is needed; here is: ${cmake_version:-none}" >&2
    exit 2
fi

# name, preset and what else to tell CMake
stages=("g++ optimised|ci|-DCMAKE_CXX_COMPILER=g++")
notes=()
if [ $quick = yes ]; then
    notes+=("--quick: the stages of sanitizers and fuzzing were left out")
else
    clang=$(choose_clang)
    # On a machine that has never seen apt-get update, nothing is known of clang yet.
    if [ "$clang" != 19 ] && command -v apt-get >/dev/null && require_packages_may_install; then
        require_packages_update
        clang=$(choose_clang)
    fi
    if [ -z "$clang" ]; then
        notes+=("no clang from 16 on is available here: the stages of sanitizers and fuzzing were left out")
    else
        [ "$clang" = 19 ] || notes+=("clang-19 is not available here: clang-$clang took its place")
        # llvm for its symbolizer, without which a sanitizer's report has addresses in place of lines.
        require_packages "clang-$clang" "libclang-rt-$clang-dev" "llvm-$clang"
        PATH=$PATH:/usr/lib/llvm-$clang/bin
        stages+=("clang-$clang asan+ubsan|asan-ubsan|-DCMAKE_CXX_COMPILER=clang++-$clang -DZEROPP_WERROR=ON")
        stages+=("clang-$clang tsan|tsan|-DCMAKE_CXX_COMPILER=clang++-$clang -DZEROPP_WERROR=ON")
        # Not every build of clang comes with libFuzzer.
        if echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
            "clang++-$clang" -fsanitize=fuzzer -x c++ -o /dev/null - 2>/dev/null; then
            stages+=("clang-$clang fuzzing|fuzz|-DCMAKE_CXX_COMPILER=clang++-$clang -DZEROPP_WERROR=ON")
        else
            notes+=("clang-$clang has no libFuzzer here: the fuzzing stage was left out")
        fi
    fi
fi

heading() { printf '\n==== %s ====\n' "$*"; }

# The sum over all Catch2 programs of a stage, from ctest's own log. An MPI program is counted once, by its first rank.
# Fuzz targets say how many inputs they have tried.
count_assertions() {
    awk '/^Done [0-9]+ runs in/ { inputs += $2 } END { if (inputs) printf "%d inputs, ", inputs }' \
        "$1/Testing/Temporary/LastTest.log" 2>/dev/null || true
    sed -n 's/^\(\[0\/[0-9]*\] \)\{0,1\}All tests passed (\([0-9]*\) assertions\{0,1\} in \([0-9]*\) test cases\{0,1\}).*/\2 \3/p' \
        "$1/Testing/Temporary/LastTest.log" 2>/dev/null |
        awk '{ assertions += $1; cases += $2 } END { printf "%d test cases, %d assertions", cases, assertions }'
}

run_stage() { # preset directory cmake-argument...
    local preset=$1 directory=$2
    shift 2
    cmake --preset "$preset" -S "$root" -B "$directory" "$@" &&
        cmake --build "$directory" -j "$(nproc)" &&
        ctest --test-dir "$directory" --output-on-failure --no-tests=error -j 2
}

failed=0
summary=()
cd "$root"
for i in "${!stages[@]}"; do
    IFS='|' read -r name preset arguments <<<"${stages[$i]}"
    heading "stage $((i + 1)) of ${#stages[@]}: $name"
    directory=$build_dir/$preset
    log=$build_dir/$preset.log
    mkdir -p "$directory"
    rm -f "$directory/Testing/Temporary/LastTest.log"
    start=$SECONDS
    status=passed
    # shellcheck disable=SC2086  # arguments without spaces, several in one string
    if ! run_stage "$preset" "$directory" $arguments </dev/null 2>&1 | tee "$log"; then
        status=FAILED
        failed=$((failed + 1))
    fi
    verdict=$(grep -E '^[0-9]+% tests passed' "$log" || echo "did not get as far as its tests")
    summary+=("$(printf '%-22s %-6s  %4d s  %s (%s)' "$name" "$status" $((SECONDS - start)) "$verdict" \
        "$(count_assertions "$directory")")")
done

heading "summary"
printf '%s\n' "${summary[@]}" ${notes[@]+"${notes[@]}"}
if [ $failed -gt 0 ]; then
    echo "FAILED: $failed of ${#stages[@]} stages"
    exit 1
fi
echo "passed: ${#stages[@]} of ${#stages[@]} stages"
