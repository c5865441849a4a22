"""Training with local steps: islands exchange their progress every few optimizer steps (DiLoCo, arXiv 2311.08105)."""

from __future__ import annotations

import hashlib
import math
import numbers
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from . import arguments, formats
from ._library import ZeroppError
from .collectives import ErrorFeedback, all_reduce
from .communicator import Communicator, Traffic, enabled, require_agreement


def _local(parameter: torch.Tensor) -> torch.Tensor:
    """This rank's elements of a parameter."""
    held = parameter.detach()
    return held.to_local() if isinstance(held, DTensor) else held


def _digest(tensors: Iterable[torch.Tensor]) -> str:
    # Of integers, because the sum of floats depends on its order, and so on the machine.
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [t.contiguous().view(-1).view(words[t.element_size()]).sum(dtype=torch.int64).item() for t in tensors]
    return hashlib.sha256(repr(sums).encode()).hexdigest()[:16]


class LocalSteps:
    """Exchanges between islands, made by local_steps(). Keeps an anchor and the outer momentum, 8 bytes for each element of
    this rank's shards, and the residuals of error feedback."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        islands: DeviceMesh | dist.ProcessGroup,
        every: int,
        exchange: formats.Gradients,
        learning_rate: float,
        momentum: float,
    ):
        arguments.instance("local_steps", "optimizer", optimizer, torch.optim.Optimizer, "an optimizer")
        arguments.instance("local_steps", "islands", islands, (DeviceMesh, dist.ProcessGroup), "a mesh or process group")
        self._group = islands.get_group() if isinstance(islands, DeviceMesh) else islands
        self._optimizer = optimizer
        self._parameters = self._parameters_now()
        self._device = self._parameters[0].device
        weights = self._weights()
        given = {
            "every": every, "exchange": exchange, "learning_rate": learning_rate, "momentum": momentum,
            "number of weights": sum(weight.numel() for weight in weights), "digest of weights": _digest(weights),
        }
        require_agreement([self._group], self._device, "local_steps", given)
        self._every = arguments.integer("local_steps", "every", every, 1)
        for name, rate in {"learning_rate": learning_rate, "momentum": momentum}.items():
            if not (isinstance(rate, numbers.Real) and 0 <= rate < math.inf):
                raise ZeroppError(f"local_steps: expected {name} as a finite number from 0, given {rate!r}")
        self._hops = formats.gradient_formats(exchange, "exchange").of(torch.float32)
        self._communicator = Communicator(self._group, ranks_per_node=1, device=self._device)
        self._anchors = [weight.float().clone() for weight in weights]
        self._outer = torch.optim.SGD(
            self._anchors or [torch.zeros(1)], lr=learning_rate, momentum=momentum, nesterov=momentum > 0
        )
        self._feedback = (
            ErrorFeedback(self._communicator, self._anchors, *self._hops, of_all_reduce=True) if self._anchors else None
        )
        self._steps = 0
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step), optimizer.register_step_post_hook(self._after_step)
        ]

    def _parameters_now(self) -> list[torch.Tensor]:
        return [p for of_group in self._optimizer.param_groups for p in of_group["params"]]

    def _weights(self) -> list[torch.Tensor]:
        """This rank's elements of each parameter. Counterparts in other islands leave out the same ones, without elements."""
        return [weight for weight in map(_local, self._parameters) if weight.numel() != 0]

    def _before_step(self, *_: Any) -> None:
        given = self._parameters_now()
        if len(given) != len(self._parameters) or any(now is not then for now, then in zip(given, self._parameters)):
            raise ZeroppError(
                f"local_steps: expected the {len(self._parameters)} parameters that the optimizer had, given others, "
                f"{len(given)} in all; after an exchange, remove() this object and call local_steps() anew"
            )

    def _after_step(self, *_: Any) -> None:
        self._steps += 1
        if self._steps % self._every == 0:
            self.exchange()

    @torch.no_grad()
    def exchange(self) -> None:
        """Makes the islands' weights equal now: all ranks call it together."""
        weights = self._weights()
        differences = [anchor - weight for anchor, weight in zip(self._anchors, weights, strict=True)]
        if enabled():
            name = f"exchange after step {self._steps}"
            all_reduce(self._communicator, differences, *self._hops, mean=True, feedback=self._feedback, name=name)
        else:
            for difference in differences:
                dist.all_reduce(difference, group=self._group)
                difference /= self._communicator.size
        for anchor, difference in zip(self._anchors, differences):
            anchor.grad = difference
        self._outer.step()
        self._outer.zero_grad(set_to_none=True)
        for anchor, weight in zip(self._anchors, weights):
            weight.copy_(anchor)

    def traffic(self) -> Traffic:
        """Traffic of this rank with other islands, as `inter_node`."""
        return self._communicator.traffic()

    def state_dict(self) -> dict[str, Any]:
        """State to save beside the model's and the optimizer's: for this rank's shards, so in one file for each rank, by
        torch.save. torch.distributed.checkpoint would take equal keys for copies, and keep one rank's. Residuals are not
        included; they start anew from zero.

        To resume, call local_steps() with the saved rates first, then load the model's state and this one."""
        return {"steps": self._steps, **self._rates(), "anchors": self._anchors, "momenta": self._momenta()}

    def _rates(self) -> dict[str, float]:
        outer = self._outer.param_groups[0]
        return {"every": self._every, "learning_rate": outer["lr"], "momentum": outer["momentum"]}

    def _momenta(self) -> list[torch.Tensor]:
        """The outer momentum of each anchor; none before the first exchange."""
        return [self._outer.state[anchor]["momentum_buffer"] for anchor in self._anchors if anchor in self._outer.state]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what state_dict() returned, and makes residuals zero. Load the model's state too: it is not changed here.

        Collective. The ranks with equal shards raise the same ZeroppError, and change nothing, if islands load different states,
        or rates other than those given to local_steps(). Change a rate in both places. Ranks with other shards do not know:
        go on only when all have loaded."""
        names = ("steps", "every", "learning_rate", "momentum", "anchors", "momenta")
        problem = ""
        if not isinstance(state, dict) or set(state) != set(names):
            given = ", ".join(map(str, state)) if isinstance(state, dict) else repr(state)
            problem = f"expected a state with {', '.join(names)}, given {given}"
        else:
            saved_rates = {name: state[name] for name in self._rates()}
            shapes = [list(anchor.shape) for anchor in self._anchors]
            if saved_rates != self._rates():
                problem = f"expected the saved rates, {saved_rates}, given {self._rates()} to local_steps()"
            for saved in (state["anchors"], state["momenta"] or self._anchors):
                of_saved = [list(tensor.shape) for tensor in saved]
                if not problem and of_saved != shapes:
                    problem = f"expected anchors and momenta of shapes {shapes}, given {of_saved}"
        stated = {"problem": problem}
        if not problem:
            stated |= {"steps": state["steps"], "digest": _digest([*state["anchors"], *state["momenta"]])}
        require_agreement([self._group], self._device, "load_state_dict", stated)
        if problem:
            raise ZeroppError(f"load_state_dict: {problem}")
        self._steps = state["steps"]
        for anchor, saved in zip(self._anchors, state["anchors"]):
            anchor.copy_(saved)
        self._outer.state.clear()
        for anchor, saved in zip(self._anchors, state["momenta"]):
            self._outer.state[anchor]["momentum_buffer"] = saved.to(anchor, copy=True)
        self.reset_feedback()

    def reset_feedback(self) -> None:
        """Makes the residuals of error feedback zero: all ranks call it together."""
        if self._feedback is not None:
            self._feedback.reset()

    def remove(self) -> None:
        """Ends the exchanges: later steps of the optimizer stay in their island."""
        for handle in self._handles:
            handle.remove()


def local_steps(
    optimizer: torch.optim.Optimizer,
    islands: DeviceMesh | dist.ProcessGroup,
    *,
    every: int = 30,
    exchange: formats.Gradients = "4bit",
    learning_rate: float = 0.7,
    momentum: float = 0.9,
) -> LocalSteps:
    """Lets islands train by themselves. After every `every` steps of `optimizer`, the mean of their progress moves all of them,
    as a gradient of an outer optimizer with Nesterov's momentum. Islands' weights are then equal, to the bit.

        mesh = init_device_mesh("cuda", (islands, ranks // islands), mesh_dim_names=("island", "rank"))
        zeropp.fully_shard(model, mesh=mesh["rank"])        # or DistributedDataParallel(process_group=mesh.get_group("rank"))
        zeropp.local_steps(optimizer, mesh["island"])

    Collective. `islands` joins the ranks with equal shards, one of each island. `exchange` is a key of PRESETS, or a format of
    gradients; residuals of error feedback are kept in any format. Weights must be equal in all islands: all ranks raise the
    same ZeroppError if they, or the arguments, differ. Exchanges block the optimizer's step. Keep weights in float32.

    Only the parameters that `optimizer` has now are exchanged: a step with others, as after add_param_group(), raises a
    ZeroppError. Each further optimizer takes a call of its own. Buffers, as BatchNorm's means, stay apart in each island.

    Steps that a GradScaler skips do not count: all islands must skip the same ones. After an exchange, call refresh(model) if
    apply() has differences.
    """
    return LocalSteps(optimizer, islands, every, exchange, learning_rate, momentum)
