"""ZeRO++'s quantized collectives for PyTorch: FSDP2, DDP, and engines of one's own."""

from ._library import ZeroppError
from .collectives import ErrorFeedback, all_gather, all_reduce, dequantize, quantize, reduce_scatter
from .communicator import Communicator, Traffic
from .ddp import ddp_hook
from .formats import PRESETS, from_deepspeed
from .fsdp import Report, apply, disabled, fully_shard, stats

__all__ = [
    "Communicator",
    "ErrorFeedback",
    "PRESETS",
    "Report",
    "Traffic",
    "ZeroppError",
    "all_gather",
    "all_reduce",
    "apply",
    "ddp_hook",
    "dequantize",
    "disabled",
    "from_deepspeed",
    "fully_shard",
    "quantize",
    "reduce_scatter",
    "stats",
]
