"""Runs an example of examples/torch/launchers with gloo on the processor: launched.py EXAMPLE [ARGUMENT...]"""

import importlib.util
import os
import runpy
import sys
import time

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

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
# Ends as train.py does: no rank closes its connections while another uses them, and gloo's threads are not waited for.
sys.stdout.flush()
time.sleep(0.5)
os._exit(0)
