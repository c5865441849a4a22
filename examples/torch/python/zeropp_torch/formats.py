"""Names of formats, and presets of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional, Union

import torch

from ._library import ZeroppError, library

Gradients = Union[str, tuple[str, str]]

#: Stands for the LOSSLESS format of the tensor's type.
OWN_TYPE = "lossless"

#: By bits of inter-node gradients: formats of weights or their differences, and of gradients (intra-node, inter-node).
PRESETS: dict[str, dict[str, Any]] = {
    "lossless": {"weights": OWN_TYPE, "gradients": (OWN_TYPE, OWN_TYPE)},
    "16bit": {"weights": "bf16", "gradients": ("bf16", "bf16")},
    "8bit": {"weights": "int8:256:fp16", "gradients": ("int8:256:bf16", "int8:256:bf16")},
    "6bit": {"weights": "int8:256:fp16", "gradients": ("int8:256:bf16", "int6:128:bf16")},
    "4bit": {"weights": "int8:256:fp16", "gradients": ("int8:256:bf16", "int4:128:signed:bf16")},
    "2bit": {
        "differences": "int2:64:signed:bf16:h32",
        "gradients": ("int8:256:bf16:h32", "int2:64:signed:bf16:h32"),
    },
}

#: The exact format of each element type.
LOSSLESS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


class GradientFormats(NamedTuple):
    """Formats of a reduction's intra-node hop (`intra_node`) and inter-node hop (`inter_node`)."""

    intra_node: str
    inter_node: str

    def of(self, dtype: torch.dtype) -> GradientFormats:
        """These formats, with `dtype`'s exact format in place of "lossless". Raises ZeroppError if there is none."""
        if self.intra_node != OWN_TYPE:
            return self
        if dtype not in LOSSLESS:
            raise ZeroppError(f"gradients: expected tensors of {', '.join(map(str, LOSSLESS))}, given {dtype}")
        return GradientFormats(LOSSLESS[dtype], LOSSLESS[dtype])


def gradient_formats(gradients: Gradients, argument: str = "gradients") -> GradientFormats:
    """Formats from one name for both hops, or one for each. Raises ZeroppError, which names `argument`, for unknown pairs."""
    intra_node, inter_node = (gradients, gradients) if isinstance(gradients, str) else gradients
    if intra_node == inter_node == OWN_TYPE:
        return GradientFormats(intra_node, inter_node)
    known = library("cpu").zeropp_reduce_formats().decode().split(", ")
    if f"{intra_node} + {inter_node}" not in known:
        pairs = ", ".join([OWN_TYPE, *known])
        raise ZeroppError(f"{argument}: expected one of {pairs}, given {intra_node} + {inter_node}")
    return GradientFormats(intra_node, inter_node)


def replica_formats(replicas: Optional[Gradients]) -> Optional[GradientFormats]:
    """Formats of the all-reduce between replicas, from a key of PRESETS or from formats of gradients; None for None."""
    if replicas is None:
        return None
    known = isinstance(replicas, str) and replicas in PRESETS
    return gradient_formats(PRESETS[replicas]["gradients"] if known else replicas, "replicas")


def weight_format(weights: str) -> str:
    """Returns `weights`. Raises ZeroppError unless it is a format of weights."""
    known = library("cpu").zeropp_gather_formats().decode().split(", ")
    if weights not in [*known, OWN_TYPE]:
        raise ZeroppError(f"weights: expected one of {', '.join([OWN_TYPE, *known])}, given {weights}")
    return weights


def difference_format(differences: str) -> str:
    """Returns `differences`. Raises ZeroppError unless it is a format of weight differences."""
    known = library("cpu").zeropp_difference_formats().decode().split(", ")
    if differences not in known:
        raise ZeroppError(f"differences: expected one of {', '.join(known)}, given {differences}")
    return differences


class Chosen(NamedTuple):
    """Formats of a call. None leaves a direction to torch; `differences` replaces `weights`."""

    weights: Optional[str]
    gradients: Optional[GradientFormats]
    differences: Optional[str] = None


def chosen(
    weights: Optional[str],
    gradients: Optional[Gradients],
    preset: Optional[str],
    differences: Optional[str] = None,
) -> Chosen:
    """The formats of `preset`, or of the other arguments if it is None. Raises ZeroppError for unknown names."""
    if preset is not None:
        if preset not in PRESETS:
            raise ZeroppError(f"preset: expected one of {', '.join(PRESETS)}, given {preset}")
        formats = PRESETS[preset]
        weights, gradients, differences = formats.get("weights"), formats["gradients"], formats.get("differences")
    return Chosen(
        None if weights is None or differences is not None else weight_format(weights),
        None if gradients is None else gradient_formats(gradients),
        None if differences is None else difference_format(differences),
    )


def from_deepspeed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of apply() from a DeepSpeed configuration, or its `zero_optimization` section. hpZ is an argument of
    fully_shard(): `secondary=section["zero_hpz_partition_size"]`."""
    section = config.get("zero_optimization", config)
    formats = PRESETS["4bit"]
    return {
        "weights": formats["weights"] if section.get("zero_quantized_weights") else None,
        "gradients": formats["gradients"] if section.get("zero_quantized_gradients") else None,
    }
