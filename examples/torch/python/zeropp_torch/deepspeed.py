"""DeepSpeed's ZeRO-3 with zeropp's collectives: import this before `deepspeed.initialize` and `deepspeed.zero.Init`.

The keys of ZeRO++ in `zero_optimization` keep their names, on the host and on GPUs, for fp32, fp16 and bf16, and for all sizes:

- `zero_quantized_weights`: forward and backward gather weights through all_gather().
- `zero_quantized_gradients`: gradients are reduced through reduce_scatter(), those of 1-D tensors too.
- `zero_hpz_partition_size`: DeepSpeed keeps the gathered weights inside of groups, and gathers them there exactly.

A section "zeropp" of the configuration, beside "zero_optimization", has the rest, all of it optional:

- `preset`, or `weights` and `gradients`: formats, as of apply(). The default is the preset "4bit".
- `differences`: "exact" in place of `weights`, for bf16 and fp16 and without hpZ. Every node keeps the weights,
  divided over its ranks, and gets their exact changes. Weights have the bits that DeepSpeed's own gathers bring.
- `ranks_per_node`: by default what the launcher says, LOCAL_WORLD_SIZE or LOCAL_SIZE. `nodes_per_site`, as of apply().
- `error_feedback`: true adds the error of one reduction to the next one of the same gradients.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator

from . import arguments, formats
from ._library import ELEMENTS, ZeroppError
from .collectives import ErrorFeedback, all_gather, reduce_scatter
from .communicator import Communicator, Traffic, enabled, new_group
from .hooks import UpdateGather
from .report import Changes

_ZERO = "deepspeed.runtime.zero."

#: DeepSpeed's private names that this module replaces or calls, by module. A release of DeepSpeed may move any of them.
PRIVATE_NAMES = {
    "deepspeed.runtime.config": ("DeepSpeedConfig.__init__",),
    "deepspeed.utils.groups": ("_get_local_all_to_all_group",),
    _ZERO + "partition_parameters": (
        "CUDAQuantizer.__init__", "CUDAQuantizer.quantize", "CUDAQuantizer.dequantize", "Init._convert_to_deepspeed_param",
        "Init._ensure_availability_of_partitioned_params", "InsertPostInitMethodToModuleSubClasses.__init__",
        "MultipleAllGatherHandles", "ZeroParamStatus", "get_allgather_dtype",
    ),
    _ZERO + "stage3": (
        "DeepSpeedZeroOptimizer_Stage3._DeepSpeedZeroOptimizer_Stage3__avg_scatter_grads", "reduce_scatter_coalesced",
    ),
}

#: Attributes that this module uses besides, by the object of DeepSpeed that has them.
PRIVATE_ATTRIBUTES = {
    "parameter": (
        "ds_id", "ds_numel", "ds_process_group", "ds_secondary_tensor", "ds_shape", "ds_status", "ds_summary", "ds_tensor",
    ),
    "configuration": ("_param_dict", "zero_config"),
    "optimizer": ("all2all_process_group",),
}

_KEYS = (*formats.FORMAT_KEYS, "ranks_per_node", "nodes_per_site", "error_feedback")


class _Settings:
    """The section "zeropp" of a configuration, and the communicators of the parameters that are made with it."""

    def __init__(self, section: Mapping[str, Any]):
        where = 'the section "zeropp"'
        arguments.instance(where, "a section", section, Mapping, "a mapping")
        if unknown := [key for key in section if key not in _KEYS]:
            raise ZeroppError(f"{where}: expected keys of {', '.join(_KEYS)}, given {', '.join(map(repr, unknown))}")
        chosen = formats.chosen_by(where, section)
        if chosen.differences not in (None, formats.EXACT):
            raise ZeroppError(f"{where}: expected no differences but {formats.EXACT}, given {chosen.differences}")
        self.weights: Optional[str] = chosen.weights
        self.differences: Optional[str] = chosen.differences
        self.gradients: formats.GradientFormats = chosen.gradients
        self.error_feedback = arguments.instance(where, "error_feedback", section.get("error_feedback", False), bool, "a bool")
        local = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE") or "none"
        if "ranks_per_node" not in section and not local.isdecimal():
            raise ZeroppError(
                f"{where}: expected ranks_per_node, or the launcher's number in LOCAL_WORLD_SIZE or LOCAL_SIZE, given {local}"
            )
        ranks_per_node = section["ranks_per_node"] if "ranks_per_node" in section else int(local)
        self.ranks_per_node = arguments.integer(where, "ranks_per_node", ranks_per_node, 1)
        self.nodes_per_site: Optional[int] = section.get("nodes_per_site")
        formats.require_sites(where, self.nodes_per_site, self.gradients)
        self._communicators: dict[tuple[dist.ProcessGroup, str], Communicator] = {}
        self._feedback: dict[tuple[object, ...], ErrorFeedback] = {}
        self._kept: dict[int, UpdateGather] = {}

    def communicator(self, group: dist.ProcessGroup, use: str) -> Communicator:
        """Of gathers and of reductions, which may run on two streams at once, one each."""
        if (group, use) not in self._communicators:
            ranks = dist.get_process_group_ranks(group)
            device = torch.device(get_accelerator().current_device_name())
            self._communicators[group, use] = Communicator(
                group if use == "gathers" else new_group(group, range(len(ranks)), device),
                nodes=[rank // self.ranks_per_node for rank in ranks],
                nodes_per_site=self.nodes_per_site,
                device=device,
            )
        return self._communicators[group, use]

    def kept(self, communicator: Communicator, parameter: Any) -> UpdateGather:
        """What nodes keep of one parameter: DeepSpeed gathers it together with others, not always with the same ones."""
        if parameter.ds_id not in self._kept:
            self._kept[parameter.ds_id] = UpdateGather(communicator, self.differences, f"parameter {parameter.ds_id}", 0)
        return self._kept[parameter.ds_id]

    def left_to_deepspeed(self, parameter: Any) -> None:
        """Is told of a gather that DeepSpeed makes: nodes do not keep the weights that this forward has."""
        if (kept := self._kept.get(parameter.ds_id)) is not None:
            kept.by_torch(of_all=True)

    def changes(self) -> list[Changes]:
        return [kept.changes for kept in self._kept.values()]

    def feedback(
        self, communicator: Communicator, parameters: Sequence[Any], gradients: Sequence[torch.Tensor], hops: formats.GradientFormats
    ) -> Optional[ErrorFeedback]:
        """Of one bucket of parameters. None without error feedback."""
        if not self.error_feedback:
            return None
        bucket = tuple(parameter.ds_id for parameter in parameters), gradients[0].dtype
        if bucket not in self._feedback:
            self._feedback[bucket] = ErrorFeedback(communicator, gradients, *hops)
        return self._feedback[bucket]

    def reset_feedback(self) -> None:
        for kept in self._feedback.values():
            kept.reset()

    def traffic(self) -> Traffic:
        return sum((c.traffic() for c in self._communicators.values()), Traffic())


class _Gathered:
    """What DeepSpeed waits for: weights that its current stream may use after wait()."""

    def __init__(self, parameters: Sequence[Any], fulls: Sequence[torch.Tensor], available: Any):
        self._parameters, self._fulls, self._available = parameters, fulls, available
        on_gpu = bool(fulls) and fulls[0].is_cuda
        self._event = torch.cuda.current_stream(fulls[0].device).record_event() if on_gpu else None

    def wait(self, **_arguments: Any) -> None:
        if self._event is not None:
            stream = torch.cuda.current_stream(self._fulls[0].device)
            stream.wait_event(self._event)
            for full in self._fulls:
                full.record_stream(stream)
        for parameter, full in zip(self._parameters, self._fulls):
            parameter.data = full.view(parameter.ds_shape).to(parameter.ds_tensor.dtype)
            parameter.ds_status = self._available
        self._parameters, self._fulls, self._event = (), (), None


def _gather(settings: _Settings, partitioning: Any, parameters: Sequence[Any], module: Any) -> Any:
    """Gathers the whole weights of `parameters`, in the settings' format: those of one type share a call."""
    partitioning._ensure_availability_of_partitioned_params(parameters)
    by_call: dict[tuple[dist.ProcessGroup, torch.dtype], list[Any]] = {}
    for parameter in sorted(parameters, key=lambda parameter: parameter.ds_id):
        if parameter.ds_status != module.ZeroParamStatus.NOT_AVAILABLE:
            raise ZeroppError(f"zeropp_torch.deepspeed: expected partitioned parameters, given {parameter.ds_summary()}")
        parameter.ds_status = module.ZeroParamStatus.INFLIGHT
        dtype = module.get_allgather_dtype(parameter, parameter.ds_tensor)
        by_call.setdefault((parameter.ds_process_group, dtype), []).append(parameter)
    handles = []
    device = get_accelerator().current_device_name()
    for (group, dtype), together in by_call.items():
        communicator = settings.communicator(group, "gathers")
        fulls = [torch.empty(parameter.ds_numel, dtype=dtype, device=device) for parameter in together]
        # DeepSpeed pads its shards with whatever memory held.
        shards = [
            parameter.ds_tensor.view(-1)[: _own(parameter.ds_numel, communicator)].to(device, dtype) for parameter in together
        ]
        if settings.differences is not None:
            for parameter, shard, full in zip(together, shards, fulls):
                settings.kept(communicator, parameter).gather(full, shard)
        else:
            weights = formats.LOSSLESS[dtype] if settings.weights == formats.OWN_TYPE else settings.weights
            all_gather(communicator, shards, fulls, weights, name=f"parameters {together[0].ds_id} to {together[-1].ds_id}")
        handles.append(_Gathered(together, fulls, module.ZeroParamStatus.AVAILABLE))
    return module.MultipleAllGatherHandles(handles)


def _own(elements: int, communicator: Communicator) -> int:
    """Elements of this rank's shard, without padding."""
    whole = math.ceil(elements / communicator.size)
    return min(whole, max(0, elements - communicator.rank * whole))


def _reduce(settings: _Settings, parameters: Sequence[Any], gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """This rank's shards of the means of `gradients`, which belong to `parameters`."""
    communicator = settings.communicator(parameters[0].ds_process_group, "reductions")
    hops = settings.gradients.of(gradients[0].dtype)
    divided = gradients[0].dtype == torch.float16
    if divided:
        # As DeepSpeed itself: a sum in fp16 overflows where the mean does not.
        gradients = [gradient / communicator.size for gradient in gradients]
    shards = [gradient.new_empty(_own(gradient.numel(), communicator)) for gradient in gradients]
    reduce_scatter(
        communicator, gradients, shards, *hops, mean=not divided,
        feedback=settings.feedback(communicator, parameters, gradients, hops),
        name=f"gradients {parameters[0].ds_id} to {parameters[-1].ds_id}",
    )
    return shards


def _settings_of(parameters: Sequence[Any]) -> _Settings:
    settings = getattr(parameters[0], "ds_zeropp", None)
    if settings is None:
        raise ZeroppError(
            "zeropp_torch.deepspeed: expected deepspeed.zero.Init with the configuration of deepspeed.initialize, given one without"
        )
    return settings


def _replace(owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))


def _install() -> None:
    """Replaces DeepSpeed's functions, once in a process. Raises ZeroppError if one is missing, with nothing replaced."""
    modules = {name: importlib.import_module(name) for name in PRIVATE_NAMES}
    missing = []
    for name, attributes in PRIVATE_NAMES.items():
        for attribute in attributes:
            try:
                functools.reduce(getattr, attribute.split("."), modules[name])
            except AttributeError:
                missing.append(f"{name}.{attribute}")
    if missing:
        raise ZeroppError(f"zeropp_torch.deepspeed: DeepSpeed {deepspeed.__version__} has no {', '.join(missing)}; 0.19.8 has")
    partitioning, stage3 = modules[_ZERO + "partition_parameters"], modules[_ZERO + "stage3"]
    reducing: list[tuple[_Settings, Sequence[Any]]] = []

    def left_to_deepspeed(parameters: Sequence[Any]) -> None:
        for parameter in parameters:
            if (settings := getattr(parameter, "ds_zeropp", None)) is not None:
                settings.left_to_deepspeed(parameter)

    def read(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def read_configuration(self: Any, *given: Any, **named: Any) -> None:
            original(self, *given, **named)
            zero = self.zero_config
            wanted = [key for key in ("zero_quantized_weights", "zero_quantized_gradients") if getattr(zero, key)]
            section = self._param_dict.get("zeropp", {})
            settings = _Settings(section) if (wanted or section) and zero.stage == 3 else None
            if settings is not None and settings.differences is not None and zero.zero_hpz_partition_size > 1:
                raise ZeroppError(
                    'the section "zeropp": expected zero_hpz_partition_size 1 with differences, for which nodes keep the '
                    f"weights, given {zero.zero_hpz_partition_size}"
                )
            if wanted and zero.stage != 3:
                warnings.warn(f"zeropp_torch.deepspeed: {', '.join(wanted)} acts in stage 3, given stage {int(zero.stage)}", stacklevel=2)
            if section and not wanted:
                warnings.warn(
                    'zeropp_torch.deepspeed: the section "zeropp" acts with zero_quantized_weights or '
                    "zero_quantized_gradients, given neither", stacklevel=2,
                )
            elif settings is not None:
                for words in formats.without_effect(section, wanted).values():
                    warnings.warn(f"zeropp_torch.deepspeed: {words}", stacklevel=2)
            self.zeropp = settings

        return read_configuration

    def begin(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def begin_partitioning(self: Any, *given: Any, ds_config: Any = None, **named: Any) -> None:
            # zero.Init may have no configuration.
            self.zeropp = getattr(ds_config, "zeropp", None)
            original(self, *given, ds_config=ds_config, **named)

        return begin_partitioning

    def partition(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def partition_parameter(self: Any, parameter: Any) -> None:
            if self.zeropp is not None and self.zeropp.differences is not None:
                name = f"a parameter of {parameter.numel()} elements"
                formats.require_exact("zeropp_torch.deepspeed", parameter.dtype, name)
            original(self, parameter)
            parameter.ds_zeropp = self.zeropp
            theirs, exactly = parameter.all_gather_coalesced, parameter.all_gather

            # As GatheredParameters does, perhaps around a forward.
            def all_gather_exactly(param_list: Any = None, *given: Any, **named: Any) -> Any:
                parameters = [parameter] if param_list is None else list(param_list)
                left_to_deepspeed(parameters)
                return exactly(parameters, *given, **named)

            def all_gather_coalesced(parameters: Any, safe_mode: bool = False, quantize: bool = False) -> Any:
                parameters = list(parameters)
                # Frozen weights may be stored in DeepSpeed's own 8 bits.
                stored = any(hasattr(p.ds_tensor, "ds_quant_scale") for p in parameters)
                ours = quantize and not stored
                # hpZ's secondary shards hold what was gathered. They move inside of their group, as they are.
                if not ours or not enabled() or any(p.ds_secondary_tensor is not None for p in parameters):
                    left_to_deepspeed(parameters)
                    return theirs(parameters, safe_mode=safe_mode, quantize=quantize and stored)
                if all(dist.get_world_size(p.ds_process_group) == 1 for p in parameters):
                    return theirs(parameters, safe_mode=safe_mode)
                return _gather(_settings_of(parameters), self, parameters, partitioning)

            parameter.all_gather, parameter.all_gather_coalesced = all_gather_exactly, all_gather_coalesced

        return partition_parameter

    class Quantizer(partitioning.CUDAQuantizer):
        """DeepSpeed's, compiled when frozen weights are to be stored in 8 bits and not before."""

        def __init__(self) -> None:
            pass

        def quantize(self, *given: Any, **named: Any) -> Any:
            super().__init__()
            return super().quantize(*given, **named)

    def average(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def average_and_scatter(self: Any, parameters: Any, dtype: torch.dtype) -> Any:
            parameters = list(parameters)
            if self.all2all_process_group is None:
                return original(self, parameters, dtype)
            if enabled():
                reducing.append((_settings_of(parameters), parameters))
            # Without these groups, DeepSpeed calls reduce_scatter_coalesced, on any number of nodes.
            groups, self.all2all_process_group = self.all2all_process_group, None
            try:
                return original(self, parameters, dtype)
            finally:
                self.all2all_process_group = groups
                reducing.clear()

        return average_and_scatter

    def reduce(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def reduce_and_scatter(tensors: Sequence[torch.Tensor], group: Any = None) -> list[torch.Tensor]:
            if not reducing or not tensors or tensors[0].dtype not in ELEMENTS:
                return original(tensors, group)
            return _reduce(*reducing[-1], tensors)

        return reduce_and_scatter

    # DeepSpeed takes the groups of its own two hops as the sign that gradients are quantized. Ours are made with the communicator.
    modules["deepspeed.utils.groups"]._get_local_all_to_all_group = dict
    partitioning.CUDAQuantizer = Quantizer
    _replace(modules["deepspeed.runtime.config"].DeepSpeedConfig, "__init__", read)
    _replace(partitioning.InsertPostInitMethodToModuleSubClasses, "__init__", begin)
    _replace(partitioning.Init, "_convert_to_deepspeed_param", partition)
    _replace(stage3.DeepSpeedZeroOptimizer_Stage3, "_DeepSpeedZeroOptimizer_Stage3__avg_scatter_grads", average)
    _replace(stage3, "reduce_scatter_coalesced", reduce)


def _settings_in(function: str, engine: Any) -> list[_Settings]:
    arguments.instance(function, "engine", engine, deepspeed.DeepSpeedEngine, "an engine of deepspeed.initialize")
    settings = [getattr(parameter, "ds_zeropp", None) for parameter in engine.module.parameters()]
    return list(dict.fromkeys(one for one in settings if one is not None))


def stats(engine: deepspeed.DeepSpeedEngine) -> Traffic:
    """Traffic of this rank through zeropp's collectives, since the parameters of `engine` were partitioned."""
    return sum((settings.traffic() for settings in _settings_in("stats", engine)), Traffic())


def changes(engine: deepspeed.DeepSpeedEngine) -> Changes:
    """Changes of weights, by parameters, as zeropp_torch.changes() has them by units. Raises ZeroppError without "differences"."""
    exact = [settings for settings in _settings_in("changes", engine) if settings.differences is not None]
    if not exact:
        raise ZeroppError('changes: expected "differences" in the section "zeropp", given none')
    return Changes.of([part for settings in exact for part in settings.changes()])


def reset_feedback(engine: deepspeed.DeepSpeedEngine) -> None:
    """With error feedback, forgets the errors of past reductions: on all ranks, after load_checkpoint() or a skipped step."""
    for settings in _settings_in("reset_feedback", engine):
        settings.reset_feedback()


_install()
