"""Loads a wheel's libraries for CUDA tensors, without PyTorch: they answer beside each other, refuse an unknown format in words
and, on a machine without a driver, report CUDA's error.

    wheel_cuda.py LIBRARY...
"""

import ctypes
import pathlib
import sys

for path in sys.argv[1:]:
    library = ctypes.CDLL(path)
    for name in ("version", "device", "error", "gather_formats"):
        getattr(library, f"zeropp_{name}").restype = ctypes.c_char_p
    assert library.zeropp_device() == b"cuda", library.zeropp_device()
    assert b"int4:128:signed:bf16" in library.zeropp_gather_formats(), library.zeropp_gather_formats()

    tensor, message = ctypes.create_string_buffer(1024), ctypes.create_string_buffer(2048)

    def quantize(form):
        status = library.zeropp_quantize(form, 0, tensor, ctypes.c_size_t(256), message, None)
        return status, library.zeropp_error().decode()

    status, words = quantize(b"int9")
    assert status == 1 and "int9" in words, (status, words)
    if not pathlib.Path("/proc/driver/nvidia/version").exists():
        status, words = quantize(b"int8:256:bf16")
        assert status == 1 and "cudaErrorInsufficientDriver" in words, (status, words)
    print(f"{pathlib.Path(path).name}: {library.zeropp_version().decode()}; {words}")
