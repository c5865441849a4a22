"""Training with local steps: islands exchange their progress every few optimizer steps (DiLoCo, arXiv 2311.08105), in
fragments and beside further steps (Streaming DiLoCo, arXiv 2501.18512)."""

from __future__ import annotations

import concurrent.futures
import hashlib
import numbers
import weakref
from collections.abc import Iterable
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from . import _library, arguments, formats
from ._library import ZeroppError
from .collectives import ErrorFeedback, all_reduce
from .communicator import Communicator, Traffic, enabled, new_group, require_agreement


def _local(parameter: torch.Tensor) -> torch.Tensor:
    """This rank's elements of a parameter."""
    held = parameter.detach()
    return held.to_local() if isinstance(held, DTensor) else held


def _digest(tensors: Iterable[torch.Tensor]) -> str:
    # Of integers, because the sum of floats depends on its order, and so on the machine. Factors make places count: a transposed
    # matrix has the same elements.
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = []
    for tensor in tensors:
        for piece in tensor.contiguous().view(-1).view(words[tensor.element_size()]).split(1 << 20):
            sums.append((piece * torch.arange(1, 2 * len(piece), 2, device=piece.device)).sum().item())
    return hashlib.sha256(repr(sums).encode()).hexdigest()[:16]


# Optimizers with local steps.
_exchanging: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


class _Fragment:
    """Weights that are exchanged together: their places among this rank's weights, and their anchors."""

    def __init__(self, places: range, anchors: list[torch.Tensor], communicator: Communicator, hops: formats.GradientFormats):
        self.places = places
        self.anchors = anchors
        self.momenta = [torch.zeros_like(anchor) for anchor in anchors]
        self.feedback = ErrorFeedback(communicator, anchors, *hops, of_all_reduce=True) if anchors else None
        #: The mean of the islands' differences that an exchange under way has as its result; None without one.
        self.mean: Optional[concurrent.futures.Future[list[torch.Tensor]]] = None


class LocalSteps:
    """Exchanges between islands, made by local_steps(). Keeps an anchor and the outer momentum, 8 bytes for each element of
    this rank's shards, and the residuals of error feedback; during an exchange, 4 bytes more for each element that it moves."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        islands: DeviceMesh | dist.ProcessGroup,
        exchange: formats.Gradients,
        nodes_per_site: Optional[int],
        **options: Any,
    ):
        arguments.instance("local_steps", "optimizer", optimizer, torch.optim.Optimizer, "an optimizer")
        arguments.instance("local_steps", "islands", islands, (DeviceMesh, dist.ProcessGroup), "a mesh or process group")
        try:
            optimizer.register_step_pre_hook(lambda *_: None).remove()
        except AttributeError:
            raise ZeroppError(
                f"local_steps: expected an optimizer that takes hooks, given a {type(optimizer).__name__}; of accelerate's "
                "wrapper, pass optimizer.optimizer"
            ) from None
        self._group = islands.get_group() if isinstance(islands, DeviceMesh) else islands
        self._optimizer = optimizer
        self._parameters = self._parameters_now()
        self._device = self._parameters[0].device
        weights = self._weights()
        given = {
            **options, "exchange": exchange, "nodes_per_site": nodes_per_site,
            "local steps before": optimizer in _exchanging, "contiguous weights": all(weight.is_contiguous() for weight in weights),
            "number of weights": sum(weight.numel() for weight in weights), "digest of weights": _digest(weights),
        }
        require_agreement([self._group], self._device, "local_steps", given)
        if optimizer in _exchanging:
            raise ZeroppError("local_steps: expected an optimizer without local steps, given one with some; remove() these")
        #: As given to local_steps().
        self._options = options
        for name, least in {"every": 1, "fragments": 1, "delay": 0}.items():
            arguments.integer("local_steps", name, options[name], least)
        for name in ("learning_rate", "momentum", "alpha"):
            arguments.instance("local_steps", name, options[name], numbers.Real, "a number")
        if options["delay"] >= options["every"]:
            raise ZeroppError(f"local_steps: expected a delay below every, {options['every']}, given {options['delay']}")
        for weight in weights:
            _library.require_tensor(weight)
        # On ranks without elements too: of parameters the types, and by a step of no elements the rates.
        for parameter in self._parameters:
            _library.element_of([parameter])
        self._outer_step(*4 * [torch.empty(0, dtype=torch.float32, device=self._device)], options["alpha"])
        hops = formats.gradient_formats(exchange, "exchange").of(torch.float32)
        formats.require_sites("local_steps", nodes_per_site, hops)
        self._hops = hops
        # One thread makes all exchanges, in one order on all ranks, while the optimizer steps on. It has a group of its own.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "zeropp-local-steps") if options["delay"] else None
        if self._thread is not None:
            self._group = new_group(self._group, range(dist.get_world_size(self._group)), self._device)
        self._communicator = Communicator(self._group, ranks_per_node=1, nodes_per_site=nodes_per_site, device=self._device)
        self._stream = torch.cuda.Stream(self._device) if self._thread and self._device.type == "cuda" else None
        self._fragments = []
        elements, first, before = sum(weight.numel() for weight in weights), 0, 0
        for number in range(options["fragments"]):
            end = first
            while end != len(weights) and before * options["fragments"] < (number + 1) * elements:
                before += weights[end].numel()
                end += 1
            anchors = [weight.float().clone() for weight in weights[first:end]]
            self._fragments.append(_Fragment(range(first, end), anchors, self._communicator, hops))
            first = end
        self._steps = 0
        # torch.compile(optimizer.step) compiles other hooks, too.
        pre, post = map(torch.compiler.disable, (self._before_step, self._after_step))
        self._handles = [optimizer.register_step_pre_hook(pre), optimizer.register_step_post_hook(post)]
        _exchanging.add(optimizer)

    def _parameters_now(self) -> list[torch.Tensor]:
        return [p for of_group in self._optimizer.param_groups for p in of_group["params"]]

    def _weights(self) -> list[torch.Tensor]:
        """This rank's elements of each parameter. Counterparts in other islands leave out the same ones, without elements."""
        return [weight for weight in map(_local, self._parameters) if weight.numel() != 0]

    def _weights_of(self, fragment: _Fragment) -> list[torch.Tensor]:
        """The weights of a fragment. Raises ZeroppError unless they are tensors as their anchors are: their memory is written."""
        weights = self._weights()[fragment.places.start : fragment.places.stop]
        for weight, anchor in zip(weights, fragment.anchors, strict=True):
            _library.require_tensor(weight)
            if (weight.shape, weight.device) != (anchor.shape, anchor.device):
                raise ZeroppError(
                    f"local_steps: expected a weight of {list(anchor.shape)} on {anchor.device}, as local_steps() was given, "
                    f"given {list(weight.shape)} on {weight.device}"
                )
        return weights

    def _outer_step(
        self, weight: torch.Tensor, anchor: torch.Tensor, momentum: torch.Tensor, mean: torch.Tensor, alpha: float
    ) -> None:
        loaded = _library.library(weight.device.type)
        with _library.on_device(weight.device):
            status = loaded.zeropp_outer_step(
                _library.element_of([weight]), *(of.data_ptr() for of in (weight, anchor, momentum, mean)), weight.numel(),
                *(float(self._options[name]) for name in ("learning_rate", "momentum")), float(alpha),
                _library.stream_of(weight.device),
            )
        _library.require_success(loaded, status)
        torch.autograd.graph.increment_version(weight)

    def _before_step(self, *_: Any) -> None:
        given = self._parameters_now()
        if len(given) != len(self._parameters) or any(now is not then for now, then in zip(given, self._parameters)):
            raise ZeroppError(
                f"local_steps: expected the {len(self._parameters)} parameters that the optimizer had, given others, "
                f"{len(given)} in all; after an exchange, remove() this object and call local_steps() anew"
            )

    def _begins(self, fragment: int, step: int) -> bool:
        """True if `fragment` begins an exchange after `step`: their turns are spread evenly over `every` steps."""
        every = self._options["every"]
        return step > 0 and (step - (fragment + 1) * every // self._options["fragments"]) % every == 0

    def _after_step(self, *_: Any) -> None:
        self._steps += 1
        for number, fragment in enumerate(self._fragments):
            if fragment.mean is not None and self._begins(number, self._steps - self._options["delay"]):
                self._apply(fragment, self._options["alpha"])
            if self._begins(number, self._steps):
                self._begin(fragment)
                if self._options["delay"] == 0:
                    self._apply(fragment, self._options["alpha"])

    @torch.no_grad()
    def _begin(self, fragment: _Fragment) -> None:
        """Begins to average the differences of `fragment`."""
        differences = [anchor - weight for anchor, weight in zip(fragment.anchors, self._weights_of(fragment), strict=True)]
        work = self._mean, fragment, differences, enabled(), f"exchange after step {self._steps}"
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        if self._thread is not None:
            fragment.mean = self._thread.submit(*work)
        else:
            # Not before it succeeds: nobody would complete the future of an exchange that has failed.
            means = work[0](*work[1:])
            fragment.mean = concurrent.futures.Future()
            fragment.mean.set_result(means)

    def _mean(self, fragment: _Fragment, differences: list[torch.Tensor], ours: bool, name: str) -> list[torch.Tensor]:
        with torch.cuda.stream(self._stream):
            if self._stream is not None:
                for difference in differences:
                    difference.record_stream(self._stream)
            if ours:
                all_reduce(self._communicator, differences, *self._hops, mean=True, feedback=fragment.feedback, name=name)
            else:
                for difference in differences:
                    dist.all_reduce(difference, group=self._group)
                    difference /= self._communicator.size
        return differences

    def _result(self, fragment: _Fragment) -> list[torch.Tensor]:
        """Waits for the exchange of `fragment` that is under way; on a GPU, has the current stream wait."""
        try:
            means = fragment.mean.result()
        except Exception:
            # Raised once. The state can then be saved, and the next exchange made.
            fragment.mean = None
            raise
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return means

    @torch.no_grad()
    def _apply(self, fragment: _Fragment, alpha: float) -> None:
        """Moves the anchors by the mean, and weights to them, except the part `alpha`: outer_optimizer::apply of C++."""
        weights = self._weights_of(fragment)
        means = self._result(fragment)
        fragment.mean = None
        for of_weight in zip(weights, fragment.anchors, fragment.momenta, means, strict=True):
            self._outer_step(*of_weight, alpha)

    def exchange(self) -> None:
        """Makes the islands' weights equal now: all ranks call it together. Exchanges that are under way end first."""
        for fragment in self._fragments:
            if fragment.mean is not None:
                self._apply(fragment, 0)
            self._begin(fragment)
            self._apply(fragment, 0)

    def traffic(self) -> Traffic:
        """Traffic of this rank with other islands, as `inter_node`; with other sites, as `inter_site`."""
        return self._communicator.traffic()

    def state_dict(self) -> dict[str, Any]:
        """State to save beside the model's and the optimizer's: for this rank's shards, so in one file for each rank, by
        torch.save. torch.distributed.checkpoint would take equal keys for copies, and keep one rank's. Waits for exchanges that
        are under way. Residuals are not included; they start anew from zero.

        To resume, call local_steps() with the saved options first, then load the model's state and this one."""
        return {
            "steps": self._steps, **self._options,
            "anchors": [anchor for fragment in self._fragments for anchor in fragment.anchors],
            "momenta": [momentum for fragment in self._fragments for momentum in fragment.momenta],
            # Of exchanges that are under way; None elsewhere.
            "means": [
                mean for fragment in self._fragments
                for mean in (self._result(fragment) if fragment.mean is not None else [None] * len(fragment.anchors))
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what state_dict() returned, and makes residuals zero. Load the model's state too: it is not changed here.

        Collective. The ranks with equal shards raise the same ZeroppError, and change nothing, if islands load different states,
        or options other than those given to local_steps(). Change an option in both places. Ranks with other shards do not know:
        go on only when all have loaded."""
        now = self.state_dict()
        problem = ""
        if not isinstance(state, dict) or set(state) != set(now):
            given = ", ".join(map(str, state)) if isinstance(state, dict) else repr(state)
            problem = f"expected a state with {', '.join(now)}, given {given}"
        else:
            saved_options = {name: state[name] for name in self._options}
            shapes = [list(anchor.shape) for anchor in now["anchors"]]
            if saved_options != self._options:
                problem = f"expected the saved options, {saved_options}, given {self._options} to local_steps()"
            for name in ("anchors", "momenta", "means"):
                saved = state[name] if isinstance(state[name], (list, tuple)) else [state[name]]
                given = [list(of.shape) if isinstance(of, torch.Tensor) else of for of in saved]
                fitting = shapes if name != "means" else [of if of is None else shape for of, shape in zip(given, shapes)]
                if not problem and given != fitting:
                    problem = f"expected {name} of shapes {shapes}, given {given}"
        stated = {"problem": problem}
        if not problem:
            saved = [tensor for name in ("anchors", "momenta", "means") for tensor in state[name] if tensor is not None]
            stated |= {"steps": state["steps"], "digest": _digest(saved)}
        require_agreement([self._group], self._device, "load_state_dict", stated)
        if problem:
            raise ZeroppError(f"load_state_dict: {problem}")
        self._steps = state["steps"]
        with torch.no_grad():
            for kept, saved in zip([*now["anchors"], *now["momenta"]], [*state["anchors"], *state["momenta"]]):
                kept.copy_(saved)
        for fragment in self._fragments:
            means = [state["means"][place] for place in fragment.places]
            fragment.mean = None
            if None not in means and means:
                fragment.mean = concurrent.futures.Future()
                fragment.mean.set_result([torch.empty_like(anchor).copy_(mean) for mean, anchor in zip(means, fragment.anchors)])
        self.reset_feedback()

    def reset_feedback(self) -> None:
        """Makes the residuals of error feedback zero: all ranks call it together, also after an exchange that has failed on any."""
        for fragment in self._fragments:
            if fragment.mean is not None:
                concurrent.futures.wait([fragment.mean])
            if fragment.feedback is not None:
                fragment.feedback.reset()

    def remove(self) -> None:
        """Ends the exchanges: later steps of the optimizer stay in their island."""
        for handle in self._handles:
            handle.remove()
        _exchanging.discard(self._optimizer)


def local_steps(
    optimizer: torch.optim.Optimizer,
    islands: DeviceMesh | dist.ProcessGroup,
    *,
    every: int = 30,
    exchange: formats.Gradients = "4bit",
    learning_rate: float = 0.7,
    momentum: float = 0.9,
    fragments: int = 1,
    delay: int = 0,
    alpha: float = 0.0,
    nodes_per_site: Optional[int] = None,
) -> LocalSteps:
    """Lets islands train by themselves. After every `every` steps of `optimizer`, the mean of their progress moves all of them,
    as a gradient of an outer optimizer with Nesterov's momentum. Islands' weights are then equal, to the bit.

        mesh = init_device_mesh("cuda", (islands, ranks // islands), mesh_dim_names=("island", "rank"))
        zeropp.fully_shard(model, mesh=mesh["rank"])        # or DistributedDataParallel(process_group=mesh.get_group("rank"))
        zeropp.local_steps(optimizer, mesh["island"])

    Collective. `islands` joins the ranks with equal shards, one of each island. `exchange` is a key of PRESETS, or a format of
    gradients; residuals of error feedback are kept in any format. Weights must be equal in all islands: all ranks raise the
    same ZeroppError if they, or the arguments, differ. Keep weights in float32. With `nodes_per_site`, each island is a node, and
    island i is in site i // nodes_per_site.

    `fragments`: that many parts of the weights, of about equal size, take turns, spread evenly over `every` steps. Weights
    of one fragment are then equal after its turn. `delay`: an exchange is used so many steps after its begin, below `every`,
    and a thread makes it meanwhile; 0 blocks the optimizer's step. `alpha`, from 0 to 1, is the part of an island's own weights
    that an exchange keeps: anchors are equal in all islands, weights then are not. `learning_rate` is above 0, `momentum` from 0
    to below 1. The step has the bits of outer_optimizer::apply in C++: an element that is not finite in one island is NaN in all.

    Only the parameters that `optimizer` has now are exchanged: a step with others, as after add_param_group(), raises a
    ZeroppError. Each further optimizer takes a call of its own. Buffers, as BatchNorm's means, stay apart in each island.

    Steps that a GradScaler skips do not count: all islands must skip the same ones. With fused optimizers, which skip inside of
    step(), they count. After an exchange, call refresh(model) if
    apply() has differences.
    """
    return LocalSteps(
        optimizer, islands, exchange, nodes_per_site, every=every, learning_rate=learning_rate, momentum=momentum,
        fragments=fragments, delay=delay, alpha=alpha,
    )
