"""Names of formats, and presets of them."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Optional, Union

import torch

from . import arguments
from ._library import ZeroppError, library, text_of

Gradients = Union[str, tuple[str, ...]]

#: Stands for the LOSSLESS format of the tensor's type.
OWN_TYPE = "lossless"

#: The format of differences after which nodes keep each weight's very bits.
EXACT = "exact"

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
    """Formats of a reduction's intra-node hop (`intra_node`), inter-node hop (`inter_node`), and hop between sites
    (`inter_site`); None there is `inter_node`."""

    intra_node: str
    inter_node: str
    inter_site: Optional[str] = None

    def __str__(self) -> str:
        return " + ".join(name for name in self if name is not None)

    def for_library(self) -> tuple[bytes, bytes]:
        """The library's arguments `intra_node` and `inter_node`, which has both formats beyond a node."""
        intra_node, beyond = text_of(str(self)).split(b" + ", 1)
        return intra_node, beyond

    def of(self, dtype: torch.dtype) -> GradientFormats:
        """These formats, with `dtype`'s exact format in place of "lossless". Raises ZeroppError if there is none."""
        if self.intra_node != OWN_TYPE:
            return self
        if dtype not in LOSSLESS:
            raise ZeroppError(f"gradients: expected tensors of {', '.join(map(str, LOSSLESS))}, given {dtype}")
        return GradientFormats(LOSSLESS[dtype], LOSSLESS[dtype])


def gradient_formats(gradients: Gradients, argument: str = "gradients") -> GradientFormats:
    """Formats from a key of PRESETS, one name for all hops, a name for each, or "INTRA_NODE + INTER_NODE", with " + INTER_SITE"
    for a format between sites. Raises ZeroppError, which names `argument`, for unknown formats."""
    names: Any = gradients
    if isinstance(gradients, GradientFormats):
        names = str(gradients).split(" + ")
    elif isinstance(gradients, str):
        names = PRESETS[gradients]["gradients"] if gradients in PRESETS else gradients.split(" + ")
        names = 2 * names if len(names) == 1 else names
    joined = " + ".join(map(str, names)) if isinstance(names, (list, tuple)) else ""
    in_sites = joined.count(" + ") == 2
    known = (library("cpu").zeropp_reduce_formats_in_sites if in_sites else library("cpu").zeropp_reduce_formats)()
    known = known.decode().split(", ")
    if joined not in [f"{OWN_TYPE} + {OWN_TYPE}", *known]:
        given = gradients if isinstance(gradients, str) else joined or repr(gradients)
        raise ZeroppError(f"{argument}: expected one of {', '.join([*PRESETS, *known])}, given {given}")
    return GradientFormats(*joined.split(" + "))


def require_sites(function: str, nodes_per_site: Optional[int], *gradients: Optional[GradientFormats]) -> None:
    """Raises ZeroppError unless `nodes_per_site` is a number of nodes, or None and no `gradients` have a format between sites."""
    if nodes_per_site is not None:
        arguments.integer(function, "nodes_per_site", nodes_per_site, 1)
        return
    for given in gradients:
        if given is not None and given.inter_site is not None:
            raise ZeroppError(f"{function}: expected nodes_per_site with a format between sites, given {given} without it")


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


def require_exact(function: str, dtype: Optional[torch.dtype], name: str) -> None:
    """Raises ZeroppError unless weights of `dtype`, of the unit or parameter `name`, can have exact differences."""
    if LOSSLESS.get(dtype) == "fp32":
        raise ZeroppError(f"{function}: expected weights gathered in 16 bits for exact differences, given fp32 in {name}")


class Chosen(NamedTuple):
    """Formats of a call. None leaves a direction to torch; `differences` replaces `weights`."""

    weights: Optional[str]
    gradients: Optional[GradientFormats]
    differences: Optional[str] = None


class Default(enum.Enum):
    """The type of DEFAULT."""

    DEFAULT = "the default"

    def __repr__(self) -> str:
        return self.value


#: Stands for an argument that the caller has not given.
DEFAULT = Default.DEFAULT


def chosen(
    function: str,
    weights: Union[str, None, Default],
    gradients: Union[Gradients, None, Default],
    preset: Optional[str],
    differences: Optional[str],
) -> Chosen:
    """The formats of `preset`, or of the other arguments if it is None; those of the preset "4bit" by default. Raises
    ZeroppError for unknown names, and for arguments of which one would replace another."""
    given = {"weights": weights is not DEFAULT, "gradients": gradients is not DEFAULT, "differences": differences is not None}
    if preset is not None:
        if not isinstance(preset, str) or preset not in PRESETS:
            raise ZeroppError(f"preset: expected one of {', '.join(PRESETS)}, given {preset}")
        if any(given.values()):
            others = " and ".join(name for name, is_given in given.items() if is_given)
            raise ZeroppError(f"{function}: expected either preset or {others}, given both")
        formats = PRESETS[preset]
        weights, gradients, differences = formats.get("weights"), formats["gradients"], formats.get("differences")
    elif given["differences"] and given["weights"] and weights is not None:
        raise ZeroppError(f"{function}: expected either weights or differences, given both")
    if weights is DEFAULT:
        weights = None if given["differences"] else PRESETS["4bit"]["weights"]
    if gradients is DEFAULT:
        gradients = PRESETS["4bit"]["gradients"]
    return Chosen(
        None if weights is None else weight_format(weights),
        None if gradients is None else gradient_formats(gradients),
        None if differences is None else difference_format(differences),
    )


#: Keys of a section "zeropp" that give formats.
FORMAT_KEYS = ("preset", "weights", "differences", "gradients")

# Keys of a section "zeropp" that apply() takes as they are.
_OTHERS = ("nodes_per_site", "error_feedback")

# Keys of a section "zeropp" that act on one direction, with the key of "zero_optimization" that switches it on.
_SWITCHES = {
    "weights": "zero_quantized_weights", "differences": "zero_quantized_weights",
    "gradients": "zero_quantized_gradients", "error_feedback": "zero_quantized_gradients",
}


def without_effect(section: Mapping[str, Any], switched_on: Collection[str]) -> dict[str, str]:
    """Keys of a section "zeropp" whose direction is not among `switched_on`, keys of "zero_optimization"; with words."""
    return {
        key: f'{key} of the section "zeropp" acts with {switch}, given without'
        for key, switch in _SWITCHES.items() if section.get(key) and switch not in switched_on
    }


def chosen_by(function: str, section: Mapping[str, Any]) -> Chosen:
    """The formats of a section "zeropp" in a DeepSpeed configuration: its `preset`, or `weights` or `differences`, and
    `gradients`."""
    gradients = section.get("gradients", DEFAULT)
    found = chosen(
        function, section.get("weights", DEFAULT), tuple(gradients) if isinstance(gradients, list) else gradients,
        section.get("preset"), section.get("differences"),
    )
    if (found.weights is None and found.differences is None) or found.gradients is None:
        raise ZeroppError(f"{function}: expected formats of weights and gradients; the keys of zero_optimization switch them off")
    return found


def from_deepspeed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of apply() from a DeepSpeed configuration, or its `zero_optimization` section. A section "zeropp", as of
    zeropp_torch.deepspeed, gives formats, error feedback and sites. Warns of settings that apply() does not take, and leaves out
    those of a direction that is off. hpZ is an argument of fully_shard(): `secondary=section["zero_hpz_partition_size"]`."""
    words = "a mapping, as json.load() makes"
    arguments.instance("from_deepspeed", "config", config, Mapping, words)
    section = arguments.instance(
        "from_deepspeed", "zero_optimization", config.get("zero_optimization", config), Mapping, words
    )
    ours = arguments.instance("from_deepspeed", "zeropp", config.get("zeropp", {}), Mapping, words)
    chosen_formats = chosen_by("from_deepspeed", ours)
    taken = {"zero_quantized_weights": "weights", "zero_quantized_gradients": "gradients"}
    for key in taken:
        arguments.instance("from_deepspeed", key, section.get(key, False), bool, "a bool")
    without_hpz = ("zero_hpz_partition_size", 1)
    dropped = [
        f"{key} {value}"
        for key, value in section.items()
        if key.startswith(("zero_quantized_", "zero_hpz_", "zeropp_")) and key not in taken and value
        and (key, value) != without_hpz
    ]
    dropped += [f"zeropp.{key} {value}" for key, value in ours.items() if key not in FORMAT_KEYS + _OTHERS]
    if dropped:
        warnings.warn(
            f"from_deepspeed: apply() does not take {', '.join(dropped)}; hpZ is fully_shard(secondary=), and error feedback "
            "apply(error_feedback=True)",
            stacklevel=2,
        )
    unused = without_effect(ours, [key for key in taken if section.get(key)])
    for words in unused.values():
        warnings.warn(f"from_deepspeed: {words}", stacklevel=2)
    differs = chosen_formats.differences is not None and section.get("zero_quantized_weights")
    return {
        **{argument: getattr(chosen_formats, argument) if section.get(key) else None for key, argument in taken.items()},
        **({"differences": chosen_formats.differences} if differs else {}),
        **{key: ours[key] for key in _OTHERS if key in ours and key not in unused},
    }
