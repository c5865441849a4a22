"""The package as it is built, installed and loaded."""

import importlib.metadata
import pathlib
import shutil
import subprocess

import pytest
import torch
import zeropp_torch as zeropp
from zeropp_torch import _library

PROJECT = pathlib.Path(__file__).parents[2] / "examples" / "torch"


def test_one_wheel_serves_every_python():
    wheel = importlib.metadata.distribution("zeropp-torch").read_text("WHEEL")
    assert "Tag: py3-none-linux_" in wheel or "Tag: py3-none-manylinux_" in wheel


def test_library_and_package_have_one_version():
    assert _library.library("cpu").zeropp_version().decode() == importlib.metadata.version("zeropp-torch")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes the package's folder one with libraries for some CUDAs, beside a PyTorch of CUDA `torch_cuda`."""

    def make(torch_cuda, *majors):
        for major in majors:
            (tmp_path / f"libzeropp_c_cuda{major}.so").touch()
        monkeypatch.setattr(_library, "__file__", str(tmp_path / "_library.py"))
        monkeypatch.setattr(torch.version, "cuda", torch_cuda)

    return make


@pytest.mark.parametrize("cuda, name", [("12.8", "libzeropp_c_cuda12.so"), ("13.0", "libzeropp_c_cuda13.so")])
def test_cuda_library_is_the_one_for_pytorch(install, cuda, name):
    install(cuda, 12, 13)
    assert _library._path("cuda").name == name


@pytest.mark.parametrize(
    "cuda, majors, words",
    [
        ("12.8", (13,), "expected a library for CUDA 12, as PyTorch has; this installation has libzeropp_c_cuda13.so;"),
        ("13.0", (), "has no library for CUDA tensors; install a wheel of examples/torch/wheel.sh --cuda, or from source with nvcc 13"),
        (None, (12, 13), "expected a PyTorch with CUDA, given one without"),
    ],
)
def test_missing_cuda_library_is_refused_in_words(install, cuda, majors, words):
    install(cuda, *majors)
    with pytest.raises(zeropp.ZeroppError) as refused:
        _library._path("cuda")
    assert words in str(refused.value)


def configured(folder, *options):
    """CMake's lines about the package, and the values of its cache."""
    command = ["cmake", "-G", "Ninja", "-S", PROJECT, "-B", folder, *options]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cache = (folder / "CMakeCache.txt").read_text()
    return [line for line in printed.splitlines() if "zeropp_torch:" in line], cache


def test_cuda_is_built_on_request_alone(tmp_path):
    said, cache = configured(tmp_path)
    assert len(said) == 1 and "-C cmake.define.ZEROPP_TORCH_CUDA=ON adds CUDA tensors" in said[0]
    assert "CMAKE_CUDA_COMPILER" not in cache


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_is_built_for_one_architecture_and_named_for_its_cuda(tmp_path):
    said, cache = configured(tmp_path, "-DZEROPP_TORCH_CUDA=ON")
    assert len(said) == 1 and "for architecture 80;" in said[0]
    assert "CMAKE_CUDA_ARCHITECTURES:STRING=80\n" in cache
    version = subprocess.run(["nvcc", "--version"], check=True, capture_output=True, text=True).stdout
    major = version.split("release ")[1].split(".")[0]
    assert f" libzeropp_c_cuda{major}.so" in (tmp_path / "build.ninja").read_text()
