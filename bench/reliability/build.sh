# shellcheck shell=bash
# To be sourced.
#
# build_program ROOT BUILD NAME    builds a program of this folder as BUILD/bench/NAME, installing what that needs, as
#                                  require_packages says

build_program() {
    # shellcheck source=../../cmake/require_packages.sh
    source "$1/cmake/require_packages.sh"
    require_packages cmake ninja-build g++ openmpi-bin libopenmpi-dev nlohmann-json3-dev libcli11-dev libxxhash-dev \
        python3 iproute2 util-linux
    echo "== building"
    cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPP_BUILD_TESTS=OFF -DZEROPP_ENABLE_MPI=ON \
        -DZEROPP_ENABLE_CHECKSUMMED=ON -DCMAKE_REQUIRE_FIND_PACKAGE_nlohmann_json=ON \
        -DCMAKE_REQUIRE_FIND_PACKAGE_CLI11=ON >/dev/null
    cmake --build "$2" --target "$3"
}
