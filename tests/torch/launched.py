"""Runs an example of examples/torch/launchers with gloo on the processor: launched.py EXAMPLE [ARGUMENT...]"""

import importlib.util
import os
import runpy
import sys
import time
import types
from unittest import mock

if importlib.util.find_spec("accelerate"):
    # accelerate itself offers FSDP on accelerators only.
    from accelerate.state import AcceleratorState, DistributedType, PartialState

    original = AcceleratorState.__init__

    def with_fsdp(self, *arguments, fsdp_plugin=None, **keywords):
        original(self, *arguments, fsdp_plugin=fsdp_plugin, **keywords)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = with_fsdp

if "torchtitan" in sys.argv[1]:
    # torchtitan trains on accelerators only, and reports their memory. Its modules ask for the device when imported.
    import torch

    nothing = dict.fromkeys(["set_device", "reset_peak_memory_stats", "empty_cache", "synchronize"], lambda *device: None)
    known = {"get_device_name": lambda device: "a processor", "current_device": lambda: 0, "memory_stats": lambda device: {}}
    memory = {"get_device_properties": lambda device: types.SimpleNamespace(total_memory=1)}
    processor = types.SimpleNamespace(**nothing, **known, **memory)
    with mock.patch.multiple(
        torch._utils, _get_available_device_type=lambda: "cpu", _get_device_module=lambda device_type: processor
    ):
        import torchtitan.train  # noqa: F401

    # gloo has no PREMUL_SUM, by which FSDP2 reduces for the factor that torchtitan sets.
    from torch.distributed.fsdp import FSDPModule

    set_factor = FSDPModule.set_gradient_divide_factor

    def set_factor_of_sums(self, factor):
        self.set_force_sum_reduction_for_comms(True)
        set_factor(self, factor)

    FSDPModule.set_gradient_divide_factor = set_factor_of_sums

if "deepspeed" in sys.argv[1]:
    # DeepSpeed compiles its operators when they are first used, shared memory between processes among them.
    os.environ |= {"DS_ACCELERATOR": "cpu"}
    import deepspeed

    deepspeed.ops.__compatible_ops__.clear()

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
# Ends as train.py does: no rank closes its connections while another uses them, and gloo's threads are not waited for.
sys.stdout.flush()
time.sleep(0.5)
os._exit(0)
