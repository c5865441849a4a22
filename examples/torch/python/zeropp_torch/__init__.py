"""ZeRO++'s quantized collectives for PyTorch: FSDP2, DDP, and your own engine."""

from ._library import ZeroppError
from .collectives import (
    ErrorFeedback,
    Replica,
    all_gather,
    all_reduce,
    all_to_all,
    dequantize,
    quantize,
    reduce_scatter,
    replica_gather,
    update_gather,
)
from .communicator import Communicator, Traffic, disabled
from .ddp import ddp_hook
from .estimate import Estimate, Machine, estimate
from .formats import PRESETS, from_deepspeed
from .fsdp import apply, changes, refresh, remove, reset_feedback, stats
from .hpz import fully_shard
from .local_steps import LocalSteps, local_steps
from .report import Changes, Report, Row
from .rollout import Published, Publisher, Subscriber, weights_digest

__all__ = [
    "Changes",
    "Communicator",
    "ErrorFeedback",
    "Estimate",
    "LocalSteps",
    "Machine",
    "PRESETS",
    "Published",
    "Publisher",
    "Replica",
    "Report",
    "Row",
    "Subscriber",
    "Traffic",
    "ZeroppError",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "apply",
    "changes",
    "ddp_hook",
    "dequantize",
    "disabled",
    "estimate",
    "from_deepspeed",
    "fully_shard",
    "local_steps",
    "quantize",
    "reduce_scatter",
    "refresh",
    "remove",
    "replica_gather",
    "reset_feedback",
    "stats",
    "update_gather",
    "weights_digest",
]
