#!/usr/bin/env bash
# Installs PyTorch, pytest and the source distribution of examples/torch into an environment of their own. Tests zeropp_torch
# against PyTorch itself, on gloo, with ranks that are processes of this machine:
#
#   tests/torch/run.sh [--torch VERSION] [--torch-index URL] [--build-dir DIR] [--cuda] [--launchers] [--install]
#                      [-- PYTEST-ARGUMENTS...]
#
#   --torch VERSION   which PyTorch; some 5 GB (default: 2.13.0)
#                     newest: the newest one, release candidates and nightly builds included
#   --torch-index URL where pip finds PyTorch, with PyPI for the rest (default: PyPI alone)
#   --build-dir DIR   where the environment is, which is made once (default: build/torch)
#   --cuda            with the library for CUDA tensors, which nvcc takes some minutes for
#   --install         makes the environment, with the package, and tests nothing
#   --launchers       with transformers, accelerate, Lightning, torchtitan, DeepSpeed and peft, for the tests of examples/torch/launchers,
#                     DeepSpeed's ZeRO-3 and LoRA
#
# Exit status: pytest's; 2 something is missing, 77 no PyTorch can be had here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value torch 2.13.0
value torch_index ''
folder build_dir "$root/build/torch"
flag cuda
flag launchers
flag install
operands_anywhere=yes
parse_options "$@"

require_packages cmake ninja-build g++ python3 python3-venv
use_ccache
python=$build_dir/venv/bin/python
wanted=("torch==$torch")
version=$torch
if [ "$torch" = newest ]; then
    wanted=(--pre torch)
    version=
fi
[ -z "$torch_index" ] || wanted+=(--extra-index-url "$torch_index")
if ! "$python" -c "import build, expecttest, pycparser, pytest, sklearn, torch; assert torch.__version__.startswith('$version')" 2>/dev/null; then
    rm -rf "$build_dir/venv"
    python3 -m venv "$build_dir/venv"
    # Apart from the rest, which is not to be prereleases.
    { "$python" -m pip install --quiet "${wanted[@]}" &&
        "$python" -m pip install --quiet build expecttest numpy pycparser pytest scikit-learn; } || {
        echo "PyTorch $torch cannot be installed here"
        exit 77
    }
fi
if [ "$launchers" = yes ] && ! "$python" -c "import accelerate, lightning, peft, torchtitan, transformers" 2>/dev/null; then
    "$python" -m pip install --quiet accelerate==1.15.0 lightning==2.6.6 peft==0.21.2 torchtitan==0.2.2 \
        transformers==5.24.0
fi
if [ "$launchers" = yes ] && ! "$python" -c "import deepspeed" 2>/dev/null; then
    "$python" -m pip install --quiet setuptools wheel
    DS_BUILD_OPS=0 "$python" -m pip install --quiet --no-build-isolation deepspeed==0.19.8
fi
with_cuda=OFF
[ "$cuda" = no ] || with_cuda=ON
# From an unpacked source distribution: it must not need the rest of the repository. An unchanged one is not compiled again.
rm -rf "$build_dir/source"
"$python" -m build --sdist --outdir "$build_dir/source" "$root/examples/torch" >/dev/null
package="$(sha256sum "$build_dir"/source/*.tar.gz) $with_cuda"
if [ "$package" != "$(cat "$build_dir/venv/package" 2>/dev/null)" ]; then
    tar -xzf "$build_dir"/source/*.tar.gz -C "$build_dir/source" --strip-components 1
    "$python" -m pip install --quiet --no-deps --force-reinstall -C cmake.define.ZEROPP_TORCH_CUDA=$with_cuda \
        "$build_dir/source"
    echo "$package" >"$build_dir/venv/package"
fi
[ "$install" = no ] || exit 0
cd "$build_dir"
# Ranks are here alone, and a bare machine may not know its own name.
export GLOO_SOCKET_IFNAME=lo
exec "$python" -m pytest -q -p no:cacheprovider --durations=20 "$root/tests/torch" "${operands[@]}"
