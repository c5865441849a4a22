#!/usr/bin/env bash
# Builds and runs the tests on a bare Debian or Ubuntu machine, installing what is missing:
#
#   tests/run.sh [--all | --everywhere] [--minutes N] [--fuzz-seconds N] [--build-dir DIR]
#
#   (nothing)           the tests that a change has to pass first, unoptimised, in eight to sixteen minutes on two cores: unit
#                       tests, laws, MPI ranks, kernels and collectives on an emulated GPU, every example, short trainings
#   --all               all tests of correctness for this machine, in 30 to 60 minutes; continuous integration does
#   --everywhere        what takes longer, or another MPI, processor or Debian. By hand, before a release
#   --minutes N         with --all: a part is left out if less time is left than its share (default: 80)
#   --fuzz-seconds N    how long each fuzz target runs with --all, or, if given, with --everywhere (default: 10)
#   --build-dir DIR     where to build (default: build/tests)
#
# Parts of --all, in this order, warnings being errors in all of them:
#   everything   g++, unoptimised: all tests, examples, benchmarks, consumer projects, clusters, simulations and nvcc
#   PyTorch      examples/torch as pip installs it, against PyTorch itself, which it installs (5 GB)
#   asan+ubsan   clang, AddressSanitizer and UndefinedBehaviorSanitizer: unit tests of the library but those of accuracy, of
#                plans and of the emulated GPU
#   tsan         clang, ThreadSanitizer: tests that have threads, but those of accuracy and of formats alone
#   fuzzing      clang, libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer: each fuzz target for a while
#   JAX          examples/jax as pip installs it, against JAX itself, which it installs (130 MB)
# beside the first of them:
#   style        clang-format, the width of lines, shellcheck and clang-tidy: tests/style.sh
# and beside its tests and PyTorch's, which leave processors idle, as are later parts compiled:
#   docs         the documentation site, with every program that it shows, and its checks seen to fail
# Parts of --everywhere:
#   MPICH        what this command does by itself, on MPICH in place of Open MPI
#   optimised    the same on Open MPI, at -O3, as users compile; and the benchmarks, all four of collectives on emulated GPUs
#   all asan+ubsan, all tsan   sanitizers with the tests that --all leaves out
#   memcheck     the host path's tests under valgrind: tests/memcheck.sh
#   compile times   of programs with the library, beside <regex>: they must not have grown
#   aarch64      g++ for 64-bit Arm, run by qemu-user: the rooms' unit tests, the hashes of known results among them
#   Conan        a package of the checkout, and a consumer of it: tests/package/conan.sh
#   conda        packages of the checkout, by conda-forge's recipe and its tool: tests/package/conda.sh
#   PyTorch launchers   examples/torch/launchers with the packages of Hugging Face, Lightning and DeepSpeed, which it installs
#   wheels       wheels of examples/torch for x86-64 and 64-bit Arm, installed and loaded: tests/torch/wheels.sh
#   PTX          all kernels as nvcc compiles them, and their machine code, for three generations of GPUs; and the host's
#                code of all headers as nvcc hands it on: tests/ptx/run.sh
#   CUDA wheel   the one with libraries for CUDA 12 and 13, which nvcc builds in some ten minutes of processor time
#   launchers    mpirun with a hostfile and Slurm on network namespaces, as docs/clusters has them; needs root
#   Debian 12, Debian 13   this command and examples/run.sh in a bare Debian, made with debootstrap; needs root
#
# Ends with what took how long, and what was left out. Exit status: 0 all passed, 1 a part failed, 2 something to run
# them is missing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
flag all
flag everywhere
value minutes ''
value fuzz_seconds ''
folder build_dir "$root/build/tests"
parse_options "$@"
if [ "$all$everywhere" = nono ] && [ -n "$fuzz_seconds" ]; then options_wrong "--fuzz-seconds is for --all and --everywhere"; fi
if [ "$all" = yes ] && [ "$everywhere" = yes ]; then options_wrong "--all and --everywhere are two runs"; fi
if [ "$all" = no ] && [ -n "$minutes" ]; then options_wrong "--minutes is for --all"; fi
[[ $minutes =~ ^([1-9][0-9]*)?$ ]] || options_wrong "--minutes needs a whole number, not: $minutes"
[[ $fuzz_seconds =~ ^([1-9][0-9]*)?$ ]] || options_wrong "--fuzz-seconds needs a whole number, not: $fuzz_seconds"
cd "$root"

# What the summary prints. Files, since parts beside each other write to them.
mkdir -p "$build_dir"
summary=$build_dir/summary
left=$build_dir/left_out
: >"$summary"
: >"$left"
left_out() { printf 'left out: %s\n' "$@" >>"$left"; }

# Seconds that each part of --all may take, on the slower of the machines that it runs on.
declare -A share=([style]=700 [everything]=2400 [PyTorch]=1000 [docs]=700 [asan+ubsan]=500 [tsan]=200 [fuzzing]=200 [JAX]=190)
share[fuzzing]=$((share[fuzzing] + 3 * (${fuzz_seconds:-10} - 10)))
limit=$((${minutes:-80} * 60))

# in_time NAME: false if too little time is left for this part of --all, which the end of the run then says.
in_time() {
    if [ "$all" = no ] || [ $((SECONDS + share[$1])) -le $limit ]; then return 0; fi
    left_out "$1: $((limit - SECONDS)) s were left of $((limit / 60)) min, and it may take ${share[$1]} s"
    return 1
}

# row NAME STATUS SECONDS TEXT
row() {
    local slow=
    if [ "$all" = yes ] && [ "$3" -gt "${share[$1]:-$3}" ]; then slow="; slower than its share of ${share[$1]} s"; fi
    printf '%-12s %-6s  %5d s  %s%s\n' "$@" "$slow" >>"$summary"
}

# The sum over all Catch2 programs of a part, from ctest's own log. An MPI program is counted once, by its first rank.
# Fuzz targets say how many inputs they have tried.
count_assertions() {
    awk '/^Done [0-9]+ runs in/ { inputs += $2 } END { if (inputs) printf "%d inputs, ", inputs }' \
        "$1/Testing/Temporary/LastTest.log" 2>/dev/null || true
    sed -n 's/^\(\[0\/[0-9]*\] \)\{0,1\}All tests passed (\([0-9]*\) assertions\{0,1\} in \([0-9]*\) test cases\{0,1\}).*/\2 \3/p' \
        "$1/Testing/Temporary/LastTest.log" 2>/dev/null |
        awk '{ assertions += $1; cases += $2 } END { printf "%d test cases, %d assertions", cases, assertions }'
}

# build_part NAME PRESET [CMAKE_ARGUMENT...]: configures and builds. Waits for another one that builds the same.
build_part() {
    local directory=$build_dir/${1// /-} preset=$2
    shift 2
    {
        flock 9
        cmake --preset "$preset" -S "$root" -B "$directory" "$@" && cmake --build "$directory" -j "$(nproc)"
    } 9>"$directory.lock" </dev/null 2>&1
}

# run_part NAME PRESET [CMAKE_ARGUMENT...]: configures, builds, calls what `after_build` names, and tests; goes on where it
# fails.
run_part() {
    local name=$1 start=$SECONDS status=passed built
    if ! in_time "$name"; then
        ${after_build:-:}
        return 0
    fi
    local directory=$build_dir/${name// /-}
    local log=$directory.log
    mkdir -p "$directory"
    rm -f "$directory/Testing/Temporary/LastTest.log"
    printf '\n==== %s ====\n' "$name"
    build_part "$@" | tee "$log" || status=FAILED
    built=$SECONDS
    ${after_build:-:}
    if [ $status = passed ]; then
        ctest --test-dir "$directory" --output-on-failure --no-tests=error -j 2 </dev/null 2>&1 | tee -a "$log" ||
            status=FAILED
    fi
    row "$name" $status $((SECONDS - start)) "compiled in $((built - start)) s, $(grep -E '^[0-9]+% tests passed' "$log" ||
        echo "did not get as far as its tests") ($(count_assertions "$directory"))"
    while IFS= read -r test; do left_out "$name: $test was skipped"; done < <(
        sed -n 's/^[[:space:]]*[0-9]* - \(.*\) (Skipped)$/\1/p' "$log")
}

# run_script NAME COMMAND...: the same for a command that says by itself what it does, and ends with 77 where it cannot.
run_script() {
    local name=$1 start=$SECONDS status=passed result=0
    shift
    in_time "$name" || return 0
    printf '\n==== %s ====\n' "$name"
    "$@" </dev/null 2>&1 | tee "$build_dir/${name// /-}.log" || result=$?
    if [ $result -eq 77 ]; then
        left_out "$name: it cannot be had here"
        return 0
    fi
    [ $result -eq 0 ] || status=FAILED
    row "$name" $status $((SECONDS - start)) ""
}

# The kernels' tests need headers of CUDA; where there is no toolkit, those of its runtime (2 MB) from Python's packages.
find_cuda_headers() {
    cuda_headers=()
    if command -v nvcc >/dev/null || [ -e /usr/local/cuda/include/cuda_runtime_api.h ]; then return 0; fi
    local folder=$build_dir/cuda
    if [ ! -e "$folder/nvidia/cu13/include/cuda_runtime_api.h" ]; then
        # Without pip, and where it finds nothing, the tests say themselves that they are skipped.
        python3 -m pip --version >/dev/null 2>&1 || ! require_packages_may_install || require_packages python3-pip
        rm -rf "$folder" "$folder.new"
        python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$folder.new" \
            'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' || return 0
        for wheel in "$folder.new"/*.whl; do python3 -m zipfile -e "$wheel" "$folder.new" || return 0; done
        mv "$folder.new" "$folder"
    fi
    cuda_headers=("-Dzeropp_cuda_headers=$folder/nvidia/cu13/include")
}

start=$SECONDS
packages=(cmake ninja-build g++ catch2 openmpi-bin libopenmpi-dev nlohmann-json3-dev libcli11-dev libopenblas-dev
    libxxhash-dev libboost-context-dev)
clang=
if [ "$all" = yes ]; then packages+=(iproute2 pkgconf python3 python3-venv valgrind libsimgrid-dev libeigen3-dev); fi
if [ "$everywhere" = yes ]; then packages+=(mpich libmpich-dev debootstrap g++-aarch64-linux-gnu qemu-user); fi
require_packages "${packages[@]}"
find_cuda_headers
if [ "$all$everywhere" != nono ]; then
    clang=$(choose_clang)
    # On a machine that has never seen apt-get update, nothing is known of clang yet.
    if [ "$clang" != 19 ] && command -v apt-get >/dev/null && require_packages_may_install; then
        require_packages_update
        clang=$(choose_clang)
    fi
    if [ -z "$clang" ]; then
        left_out "sanitizers and fuzzing: no clang from 16 on is available here"
    else
        [ "$clang" = 19 ] || left_out "clang-19, which is not available here: clang-$clang took its place"
        # llvm for its symbolizer, without which a sanitizer's report has addresses in place of lines.
        require_packages "clang-$clang" "libclang-rt-$clang-dev" "llvm-$clang"
        PATH=$PATH:/usr/lib/llvm-$clang/bin
    fi
fi
row installing passed $((SECONDS - start)) ""

if ! cmake_version=$(cmake --version 2>/dev/null | sed -n '1s/^cmake version //p') || [ -z "$cmake_version" ] ||
    [ "$(printf '3.25\n%s\n' "$cmake_version" | sort -V | head -n 1)" != 3.25 ]; then
    echo "CMake 3.25 or newer is needed; here is: ${cmake_version:-none}" >&2
    exit 2
fi
use_ccache

with_gcc=(-DCMAKE_CXX_COMPILER=g++ "${cuda_headers[@]}")
with_clang=("-DCMAKE_CXX_COMPILER=clang++-$clang" -DZEROPP_WERROR=ON "${cuda_headers[@]}")
fuzzing=(fuzzing fuzz "${with_clang[@]}" "-DZEROPP_FUZZ_SECONDS=${fuzz_seconds:-10}")
# Not every build of clang comes with libFuzzer.
can_fuzz() {
    [ -n "$clang" ] && echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
        "clang++-$clang" -fsanitize=fuzzer -x c++ -o /dev/null - 2>/dev/null
}
run_fuzzing() {
    if can_fuzz; then
        run_part "${fuzzing[@]}"
    elif [ -n "$clang" ]; then
        left_out "fuzzing: clang-$clang has no libFuzzer here"
    fi
}

# Tests wait, for each other and for time to pass. Meanwhile the site and later parts are built, at the lowest priority.
work_ahead() {
    {
        renice -n 19 -p "$BASHPID" >/dev/null || true
        run_script docs tests/docs/run.sh --build-dir "$build_dir/documentation"
        if [ -n "$clang" ]; then
            build_part asan+ubsan asan-ubsan "${with_clang[@]}" || true
            build_part tsan tsan "${with_clang[@]}" || true
        fi
        ! can_fuzz || build_part "${fuzzing[@]}" || true
    } >"$build_dir/ahead.log" 2>&1 &
    ahead=$!
}

if [ "$all" = yes ]; then
    # Beside the first builds: a script whose last file is one process's, and PyTorch, which comes over the network, and
    # zeropp_torch, whose C library is one file.
    {
        run_script style tests/style.sh --build-dir "$build_dir/style"
        timeout --kill-after=10 1500 tests/torch/run.sh --install --build-dir "$build_dir/torch" || true
    } >"$build_dir/beside.log" 2>&1 &
    beside=$!
    ahead=
    trap 'kill $beside $ahead 2>/dev/null || true' EXIT
    # First the parts that fail most often.
    after_build=work_ahead run_part everything ci "${with_gcc[@]}"
    wait "$beside"
    cat "$build_dir/beside.log"
    run_script PyTorch tests/torch/run.sh --build-dir "$build_dir/torch" -- --ignore "$root/tests/torch/test_launchers.py"
    if [ -n "$clang" ]; then
        run_part asan+ubsan asan-ubsan "${with_clang[@]}"
        run_part tsan tsan "${with_clang[@]}"
    fi
    run_fuzzing
    if [ -e "$build_dir/everything" ]; then
        run_script JAX tests/jax/run.sh --c-library "$build_dir/everything" --build-dir "$build_dir/jax"
    else
        left_out "JAX: its C library is built by everything"
    fi
    wait "$ahead"
    cat "$build_dir/ahead.log"
    left_out "another MPI, processor and Debian, launchers of PyTorch, compile times, machine code of kernels, PTX
          of abilities, other benchmarks on emulated GPUs, the host's code of headers through nvcc: --everywhere" \
        "a GPU: tests/gpu.sh" \
        "more than 2^32 elements: docs/concepts/commands.md says how"
elif [ "$everywhere" = yes ]; then
    run_part MPICH loop "${with_gcc[@]}" -DMPI_CXX_COMPILER=mpicxx.mpich \
        -DMPIEXEC_EXECUTABLE="$(command -v mpiexec.mpich)" -DZEROPP_BUILD_C=ON
    run_part optimised release "${with_gcc[@]}" -DZEROPP_TEST_ALL=OFF -DZEROPP_TEST_ALL_EMULATED=ON
    if [ -n "$clang" ]; then
        run_part "all asan+ubsan" asan-ubsan "${with_clang[@]}" -DZEROPP_TEST_ALL=ON
        run_part "all tsan" tsan "${with_clang[@]}" -DZEROPP_TEST_ALL=ON
    fi
    run_script memcheck tests/memcheck.sh --build-dir "$build_dir/memcheck"
    run_script "compile times" bench/compile_time/run.sh --check --build-dir "$build_dir/compile_time"
    run_part aarch64 aarch64
    run_script Conan tests/package/conan.sh --build-dir "$build_dir/conan"
    run_script conda tests/package/conda.sh --build-dir "$build_dir/conda"
    run_script "PyTorch launchers" tests/torch/run.sh --launchers --build-dir "$build_dir/torch" -- -k "launchers or peft or deepspeed"
    run_script wheels tests/torch/wheels.sh --build-dir "$build_dir/wheels"
    run_script PTX tests/ptx/run.sh --build-dir "$build_dir/ptx"
    run_script "CUDA wheel" tests/torch/wheels.sh --cuda --build-dir "$build_dir/wheels"
    if [ "$(id -u)" -eq 0 ]; then
        run_script launchers tests/cluster/launchers.sh --build-dir "$build_dir/launchers"
        run_script "Debian 12" tests/in_debian.sh --suite bookworm --build-dir "$build_dir/bookworm"
        run_script "Debian 13" tests/in_debian.sh --suite trixie --build-dir "$build_dir/trixie"
    else
        left_out "Debian 12 and 13 and launchers: need root"
    fi
    if [ -n "$fuzz_seconds" ]; then
        run_fuzzing
    else
        left_out "fuzzing for long: --fuzz-seconds says how long"
    fi
    left_out "all tests of correctness for this machine: --all"
else
    run_part loop loop "${with_gcc[@]}"
    left_out "the codec with each instruction set, sanitizers, fuzzing, valgrind, nvcc, benchmarks, clusters of network
          namespaces, consumer projects, headers by themselves, definitions twice, what must not compile: --all" \
        "another MPI, processor and Debian: --everywhere" "a GPU: tests/gpu.sh"
fi

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
printf '\n==== summary: %d min %d s on %s x %s ====\n' $((SECONDS / 60)) $((SECONDS % 60)) "$(nproc)" \
    "${processor:-$(uname -m)}"
cat "$summary" "$left"
parts=$(grep -cv '^installing ' "$summary")
failed=$(grep -c '^[^ ].* FAILED ' "$summary" || true)
if [ "$failed" -gt 0 ]; then
    echo "FAILED: $failed of $parts parts"
    exit 1
fi
echo "passed: $parts of $parts parts"
