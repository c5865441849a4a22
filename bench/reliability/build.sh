# shellcheck shell=bash
# To be sourced, with $root and $build set.
#
# build_program NAME    builds a program of this folder as $build/bench/NAME, installing what that needs, as
#                       require_packages says

# shellcheck source=../../cmake/require_packages.sh
source "$root/cmake/require_packages.sh"

build_program() {
    require_packages cmake ninja-build g++ openmpi-bin libopenmpi-dev nlohmann-json3-dev libcli11-dev libxxhash-dev \
        python3 iproute2 util-linux
    echo "== building"
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPP_BUILD_TESTS=OFF -DZEROPP_ENABLE_MPI=ON \
        -DZEROPP_ENABLE_CHECKSUMMED=ON -DCMAKE_REQUIRE_FIND_PACKAGE_nlohmann_json=ON \
        -DCMAKE_REQUIRE_FIND_PACKAGE_CLI11=ON >/dev/null
    cmake --build "$build" --target "$1"
}
