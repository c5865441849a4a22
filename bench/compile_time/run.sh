#!/usr/bin/env bash
# Measures compile times of programs that use the library, beside <regex> and Eigen, and writes their table. Installs
# missing packages (Debian and Ubuntu), or names them where it may not.
#
#   bench/compile_time/run.sh [--check] [--turns N] [--cxx COMPILER] [--build-dir DIR] [--results DIR]
#
#   --check          fails where time or memory has grown since the table, which stays as it is, in 3 to 7 turns. Exit
#                    status: 77 if the table has no rows of this compiler
#   --turns N        how often each program is compiled without --check (default: 15)
#   --cxx COMPILER   the C++ compiler; each has a table of its own (default: g++)
#   --build-dir DIR  where what is to be measured is found out (default: build/compile_time)
#   --results DIR    where compile_time.json and .md are, with the tables of other compilers (default: bench/results)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
flag check
value turns 15
value cxx g++
folder build_dir "$root/build/compile_time"
folder results "$root/bench/results"
parse_options "$@"

require_packages cmake ninja-build g++ openmpi-bin libopenmpi-dev nlohmann-json3-dev libcli11-dev libeigen3-dev python3
cmake --preset release -S "$root" -B "$build_dir" "-DCMAKE_CXX_COMPILER=$cxx" -DZEROPP_BUILD_TESTS=OFF \
    -DZEROPP_ENABLE_MPI=ON -DCMAKE_REQUIRE_FIND_PACKAGE_Eigen3=ON -DCMAKE_REQUIRE_FIND_PACKAGE_CLI11=ON \
    -DCMAKE_REQUIRE_FIND_PACKAGE_nlohmann_json=ON >/dev/null
mapfile -t command <"$build_dir/bench/compile_time/command"
[ "$check" = no ] || command+=(--check)
exec "${command[@]}" --turns "$turns" --results "$results"
