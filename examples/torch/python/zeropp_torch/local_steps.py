"""Training with local steps: islands exchange their progress every few optimizer steps (DiLoCo, arXiv 2311.08105)."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from . import formats
from ._library import ZeroppError
from .collectives import ErrorFeedback, all_reduce
from .communicator import Communicator, Traffic, enabled, require_agreement


def _local(parameter: torch.Tensor) -> torch.Tensor:
    """This rank's elements of a parameter."""
    held = parameter.detach()
    return held.to_local() if isinstance(held, DTensor) else held


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
        group = islands.get_group() if isinstance(islands, DeviceMesh) else islands
        parameters = [p for of_group in optimizer.param_groups for p in of_group["params"]]
        # Counterparts in other islands have shards of equal sizes, so they leave out the same ones.
        self._weights = [weight for weight in map(_local, parameters) if weight.numel() != 0]
        device = parameters[0].device
        digest = hashlib.sha256(repr([weight.double().sum().item() for weight in self._weights]).encode()).hexdigest()
        given = {
            "every": every, "exchange": exchange, "learning_rate": learning_rate, "momentum": momentum,
            "number of weights": sum(weight.numel() for weight in self._weights), "digest of weights": digest[:16],
        }
        require_agreement([group], device, "local_steps", given)
        if every < 1:
            raise ZeroppError(f"local_steps: expected an exchange every 1 step or more, given {every}")
        self._group = group
        self._every = every
        known = isinstance(exchange, str) and exchange in formats.PRESETS
        chosen = formats.PRESETS[exchange]["gradients"] if known else exchange
        self._hops = formats.gradient_formats(chosen, "exchange").of(torch.float32)
        self._communicator = Communicator(group, ranks_per_node=1, device=device)
        self._anchors = [weight.float().clone() for weight in self._weights]
        self._outer = torch.optim.SGD(
            self._anchors or [torch.zeros(1)], lr=learning_rate, momentum=momentum, nesterov=momentum > 0
        )
        self._feedback = (
            ErrorFeedback(self._communicator, self._anchors, *self._hops, of_all_reduce=True) if self._anchors else None
        )
        self._steps = 0
        self._handle = optimizer.register_step_post_hook(self._after_step)

    def _after_step(self, *_: Any) -> None:
        self._steps += 1
        if self._steps % self._every == 0:
            self.exchange()

    @torch.no_grad()
    def exchange(self) -> None:
        """Makes the islands' weights equal now: all ranks call it together."""
        differences = [anchor - weight for anchor, weight in zip(self._anchors, self._weights)]
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
        for anchor, weight in zip(self._anchors, self._weights):
            weight.copy_(anchor)

    def traffic(self) -> Traffic:
        """Traffic of this rank with other islands, as `inter_node`."""
        return self._communicator.traffic()

    def state_dict(self) -> dict[str, Any]:
        """State to save beside the model's and the optimizer's: for this rank's shards, so in one file for each rank, by
        torch.save. torch.distributed.checkpoint would take equal keys for copies, and keep one rank's. Residuals are not
        included; they start anew from zero.

        To resume, make LocalSteps first, then load the model's state and this one."""
        return {"steps": self._steps, "anchors": self._anchors, "outer": self._outer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what state_dict() returned. Load the model's state too: it is not changed here."""
        self._steps = state["steps"]
        for anchor, saved in zip(self._anchors, state["anchors"], strict=True):
            anchor.copy_(saved)
        self._outer.load_state_dict(state["outer"])

    def remove(self) -> None:
        """Ends the exchanges: later steps of the optimizer stay in their island."""
        self._handle.remove()


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
    Steps that a GradScaler skips do not count: all islands must skip the same ones. After an exchange, call refresh(model) if
    apply() has differences.
    """
    return LocalSteps(optimizer, islands, every, exchange, learning_rate, momentum)
