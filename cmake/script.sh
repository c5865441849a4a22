# shellcheck shell=bash
# What the shell scripts of this repository share. To be sourced by bash scripts; sets `root`, the repository.
#
# Options. A script declares them, and then parses its arguments; variables hold what was given. `--help` prints the
# script's first comment, up to its line `set ...`. What is wrong ends it with status 2.
#   flag NAME             --name: `name` is yes, or no
#   value NAME DEFAULT    --name VALUE
#   folder NAME DEFAULT   --name DIR, which is made where it is missing; `name` is its absolute path
#   parse_options ARG...  fills `operands` with what follows `--`; with `operands_anywhere=yes` set, also with all that
#                         is no option of the script's
#
# Packages.
#   require_packages NAME...  installs the Debian or Ubuntu packages that are missing; never asks. Exits with status 2,
#                             and says what to install, where it may not. Where there is no apt, it only says so.
#   choose_clang              prints the major version of clang to use: 19, else the newest from 16 on; or nothing.
#
# Programs.
#   build_programs DIR TARGET...  installs what they need, and builds examples and benchmarks, optimised, in DIR
#   train_once FILE ARG...        runs zero3_gpt of `build_dir`, which makes FILE.json and FILE.dat, with these configurations
#                                 and arguments; or says that an earlier call with equal ones has ended
#   launch_ranks N PROGRAM...     runs it under mpirun as N ranks of this machine
#   use_ccache                    has compilations cached, where there is a ccache

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

declare -A option_kinds=()
operands=()
operands_anywhere=no

flag() {
    option_kinds[$1]=flag
    printf -v "$1" no
}
value() {
    option_kinds[$1]=value
    printf -v "$1" %s "$2"
}
folder() {
    option_kinds[$1]=folder
    printf -v "$1" %s "$2"
}

options_wrong() {
    echo "$(basename "$0"): $1 (see --help)" >&2
    exit 2
}

parse_options() {
    local name given
    while [ $# -gt 0 ]; do
        given=$1
        name=${given#--}
        name=${name//-/_}
        shift
        case $given in
        -h | --help)
            sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
            exit 0
            ;;
        --)
            operands+=("$@")
            break
            ;;
        esac
        if [[ $given != --* || $given == *_* || -z ${option_kinds[$name]:-} ]]; then
            [ $operands_anywhere = yes ] || options_wrong "unknown option: $given"
            operands+=("$given")
            continue
        fi
        if [ "${option_kinds[$name]}" = flag ]; then
            printf -v "$name" yes
            continue
        fi
        if [ $# -eq 0 ] || [[ $1 == --* ]]; then options_wrong "$given needs a value"; fi
        printf -v "$name" %s "$1"
        shift
    done
    for name in "${!option_kinds[@]}"; do
        [ "${option_kinds[$name]}" = folder ] || continue
        mkdir -p "${!name}" || options_wrong "cannot make the folder ${!name}"
        printf -v "$name" %s "$(cd "${!name}" && pwd)"
    done
}

require_packages_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

require_packages_apt() {
    local -a as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@" </dev/null
}

require_packages_may_install() {
    [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null
}

# Once per script: a fresh machine has no package lists, and stale ones name files that are gone.
require_packages_update() {
    [ -z "${require_packages_updated:-}" ] || return 0
    require_packages_updated=yes
    require_packages_apt update || echo "apt-get update failed; going on with the package lists that are here" >&2
}

require_packages() {
    local package
    local -a missing=()
    if ! command -v apt-get >/dev/null; then
        echo "No apt-get here; going on with what is installed. Needed are: $*" >&2
        return 0
    fi
    for package in "$@"; do
        require_packages_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    if ! require_packages_may_install; then
        echo "Missing packages, and no right to install them without asking. Please run:" >&2
        echo "    sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 2
    fi
    echo "Installing: ${missing[*]}"
    require_packages_update
    if ! require_packages_apt install -y --no-install-recommends "${missing[@]}" >/dev/null; then
        echo "apt-get could not install: ${missing[*]}" >&2
        exit 2
    fi
}

choose_clang() {
    local version
    for version in 19 $(apt-cache pkgnames clang- 2>/dev/null | sed -n 's/^clang-\([0-9]\+\)$/\1/p' | sort -rn); do
        [ "$version" -ge 16 ] || continue
        if command -v "clang++-$version" >/dev/null ||
            [ -n "$(apt-cache madison "clang-$version" 2>/dev/null)" ]; then
            echo "$version"
            return 0
        fi
    done
}

build_programs() {
    local build=$1
    shift
    require_packages cmake ninja-build g++ openmpi-bin libopenmpi-dev libopenblas-dev nlohmann-json3-dev libcli11-dev \
        libxxhash-dev python3
    echo "== building"
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPP_BUILD_TESTS=OFF -DZEROPP_ENABLE_MPI=ON \
        -DZEROPP_ENABLE_CHECKSUMMED=ON -DCMAKE_REQUIRE_FIND_PACKAGE_CLI11=ON \
        -DCMAKE_REQUIRE_FIND_PACKAGE_nlohmann_json=ON >/dev/null
    cmake --build "$build" --target "$@"
}

train_once() {
    local file=$1 argument made
    shift
    made=$(for argument in "$@"; do
        echo "$argument"
        [ ! -f "$argument" ] || cat "$argument"
    done)
    if [ -e "$file.made" ] && [ "$made" = "$(<"$file.made")" ]; then
        echo "== ${file##*/}: finished before"
        return
    fi
    printf '\n== %s, after %d s\n' "${file##*/}" "$SECONDS"
    # If this training is stopped, no note of an earlier one stands beside its results.
    rm -f "$file.made"
    # Ranks fill the cores, so more BLAS threads would only disturb.
    OPENBLAS_NUM_THREADS=1 "$build_dir/examples/zero3_gpt/zero3_gpt" "$@" --json "$file.json" --curve "$file.dat"
    echo "$made" >"$file.made"
}

launch_ranks() {
    local ranks=$1
    shift
    # Containers often forbid the copy between processes that Open MPI tries first; shared memory serves as well.
    local -a mpirun=(mpirun -np "$ranks" --oversubscribe --bind-to none --mca btl_vader_single_copy_mechanism none)
    if [ "$(id -u)" -eq 0 ]; then mpirun+=(--allow-run-as-root); fi
    # Open MPI looks for a remote shell even where all ranks are here, and a bare machine has no ssh. Ranks fill the
    # cores; more BLAS threads would only get in each other's way.
    OMPI_MCA_plm_rsh_agent=sh OPENBLAS_NUM_THREADS=1 "${mpirun[@]}" "$@"
}

use_ccache() {
    command -v ccache >/dev/null || return 0
    # Precompiled headers are made anew in every build folder; ccache takes them for the same where what they hold is.
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_SLOPPINESS=pch_defines,time_macros
}
