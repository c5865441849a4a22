"""Names of torch that are not its public interface, and that zeropp_torch uses: all of them exist in this torch."""

import ast
import importlib
import pathlib

import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from models import network, shard
from torch.distributed.device_mesh import init_device_mesh

PACKAGE = pathlib.Path(zeropp.__file__).parent
FSDP = "torch.distributed.fsdp._fully_shard"

# By object: the names, and the reason for which no public one does.
MODULES = {
    # torch makes the groups of reshard_after_forward=k anew for every unit: fully_shard's secondary shares them.
    f"{FSDP}._fully_shard": ["_get_post_forward_mesh_info"],
    # The type of the mesh decides if torch reduces between replicas itself.
    f"{FSDP}._fsdp_common": ["DataParallelMeshInfo", "FSDPMeshInfo"],
    # True in backward.
    "torch._C": ["_current_graph_task_id"],
    # Groups so far, by which torch names the next one.
    "torch.distributed.distributed_c10d": ["_world", "get_backend_config"],
    # End of backward.
    "torch.autograd.variable": ["Variable"],
}
UNIT = {"module": ["_get_fsdp_state"], "state": ["_auto_reshard_after_forward"]}
GROUP = [
    "fsdp_params", "modules", "mesh_info", "post_forward_mesh_info", "device", "all_reduce_grads", "gradient_divide_factor",
    "force_sum_reduction_for_comms", "_all_reduce_hook", "_all_gather_comm", "_reduce_scatter_comm",
]
PARAMETER = ["mesh_info", "_orig_size", "_sharded_local_tensor", "sharded_param", "padded_sharded_param_size", "mp_policy"]
MESH = ["mesh", "shard_process_group", "replicate_process_group"]
# A callback at the end of backward; the timeout of a group.
OTHERS = {"Variable": ["_execution_engine"], "ProcessGroup": ["_get_backend"], "Backend.Options": ["_timeout"]}
# A state has one of these: the second before torch 2.12.
GROUPS_OF_A_STATE = ["_fsdp_param_groups", "_fsdp_param_group"]
# Of a parameter group, from torch 2.13 on.
RESET = ["_reset_iter_state"]


def private_names_used():
    """Names that begin with an underscore, that the package uses and does not define."""
    used, own = {}, set()
    for file in PACKAGE.glob("*.py"):
        if file.name == "deepspeed.py":
            continue  # it lists DeepSpeed's names, and checks them when it is imported
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Attribute):
                names = [node.attr]
                if isinstance(node.ctx, ast.Store):
                    own.add(node.attr)
            elif isinstance(node, ast.ImportFrom):
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                own.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
            for name in names:
                if name.startswith("_") and not name.startswith("__"):
                    used.setdefault(name, set()).add(file.name)
    modules = {file.stem for file in PACKAGE.glob("*.py")}
    patched = {"_get_post_forward_mesh_info", *RESET}
    return {name: sorted(files) for name, files in used.items() if name not in (own - patched) | modules}


def files_with(name):
    return sorted(file.name for file in PACKAGE.glob("*.py") if name in file.read_text())


def test_every_private_name_is_listed():
    by_object = [*MODULES.values(), *UNIT.values(), *OTHERS.values(), GROUP, PARAMETER, MESH, GROUPS_OF_A_STATE, RESET]
    listed = {*sum(by_object, []), *".".join(MODULES).split(".")}
    unlisted = {name: files for name, files in private_names_used().items() if name not in listed}
    assert unlisted == {}, "expected only the private names of torch that this file lists"


def module_named(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def missing_names(rank, size):
    """Sentences on names that this torch lacks."""
    model = shard(network(), mesh=init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard")))
    unit = zeropp.units.units_of(model)[0]
    group = unit.groups[0]
    default = dist.group.WORLD
    objects = [
        *((module_named(module), module, names) for module, names in MODULES.items()),
        (unit.module, "FSDPModule", UNIT["module"]),
        (unit.module._get_fsdp_state(), "FSDPState", UNIT["state"]),
        (group, "FSDPParamGroup", GROUP),
        (group.fsdp_params[0], "FSDPParam", PARAMETER),
        (group.mesh_info, "HSDPMeshInfo", MESH),
        (torch.autograd.Variable, "Variable", OTHERS["Variable"]),
        (torch.distributed.distributed_c10d._world, "_world", ["pg_names"]),
        (default, "ProcessGroup", OTHERS["ProcessGroup"]),
        (default._get_backend(torch.device("cpu")).options, "Backend.Options", OTHERS["Backend.Options"]),
    ]
    return [
        f"torch {torch.__version__} has no {of}.{name}, which {', '.join(files_with(name))} of zeropp_torch use"
        for thing, of, names in objects
        for name in names
        if not hasattr(thing, name)
    ]


def test_this_torch_has_the_private_names(ranks):
    assert ranks.run(1, missing_names) == [[]]
