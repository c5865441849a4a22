#!/usr/bin/env bash
# Makes a folder with nvcc and the static runtime of one CUDA, for examples/torch/wheel.sh. It needs no GPU, no driver and no
# right to install. CUDA 13.0 comes from PyPI (105 MB). PyPI has no nvcc 12: Debian 13 has that of CUDA 12.4, in non-free
# (87 MB), and PyPI its headers and the runtime of 12.9, the first with a static library:
#
#   examples/torch/cuda_toolkit.sh --out DIR [--major N]
#
#   --out DIR     where bin/nvcc and the rest go
#   --major N     12 or 13 (default: 13)
#
# Exit status: 0 made, or made before; 2 something to run this is missing, 77 the packages cannot be had here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value major 13
folder out ''
parse_options "$@"
[[ $major =~ ^1[23]$ ]] || options_wrong "--major: expected 12 or 13, given $major"
[ "$(uname -m)" = x86_64 ] || options_wrong "expected a machine of x86_64, given $(uname -m)"
[ ! -x "$out/bin/nvcc" ] || exit 0

require_packages python3 python3-pip
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
absent() {
    echo "CUDA $major cannot be had here: $1"
    exit 77
}
# from_pypi FOLDER PACKAGE==VERSION...
from_pypi() {
    local wheel into=$1
    shift
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$into" "$@" || absent "PyPI has no $*"
    for wheel in "$into"/*.whl; do python3 -m zipfile -e "$wheel" "$into"; done
}

if [ "$major" = 13 ]; then
    from_pypi "$scratch" nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
    made=$scratch/nvidia/cu13
    ln -s lib "$made/lib64"
else
    from_pypi "$scratch/headers" nvidia-cuda-nvcc-cu12==12.4.131 nvidia-cuda-runtime-cu12==12.4.127
    from_pypi "$scratch/static" nvidia-cuda-runtime-cu12==12.9.79
    # Debian's package by apt, which checks signatures, from lists of its own: the machine's stay as they are.
    require_packages debian-archive-keyring
    echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie non-free" \
        >"$scratch/sources.list"
    mkdir -p "$scratch/apt/lists/partial" "$scratch/apt/cache/archives/partial"
    chmod 755 "$scratch"
    apt=(apt-get -qq -o "Dir::Etc::SourceList=$scratch/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$scratch/apt/lists" -o "Dir::Cache=$scratch/apt/cache" -o APT::Sandbox::User=)
    (cd "$scratch" && "${apt[@]}" update && "${apt[@]}" download nvidia-cuda-toolkit=12.4.131~12.4.1-2) ||
        absent "Debian 13 has no nvidia-cuda-toolkit 12.4.131"
    dpkg -x "$scratch"/nvidia-cuda-toolkit_*.deb "$scratch/debian"
    made=$scratch/made
    compiler=$scratch/debian/usr/lib/nvidia-cuda-toolkit
    mkdir -p "$made/bin" "$made/nvvm/bin"
    cp "$scratch"/debian/usr/bin/{bin2c,cudafe++,fatbinary,nvlink,ptxas} "$compiler/bin/nvcc" "$made/bin"
    cp -r "$compiler/bin/crt" "$made/bin"
    cp "$compiler/bin/cicc" "$made/nvvm/bin"
    cp -r "$compiler/libdevice" "$made/nvvm"
    cp -r "$scratch/headers/nvidia/cuda_runtime/include" "$made"
    cp -r "$scratch"/headers/nvidia/cuda_nvcc/include/{crt,fatbinary_section.h} "$made/include"
    cp -r "$scratch/static/nvidia/cuda_runtime/lib" "$made/lib64"
    # Where nvcc finds its parts. Debian's file names folders of Debian.
    cat >"$made/bin/nvcc.profile" <<'PROFILE'
TOP = $(_HERE_)/..
CICC_PATH = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(CICC_PATH):$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
PROFILE
fi
chmod +x "$made"/bin/* "$made"/nvvm/bin/*
cp -r "$made/." "$out"
"$out/bin/nvcc" --version | tail -n 2
