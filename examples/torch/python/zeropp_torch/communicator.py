"""Communicators of zeropp's collectives, over torch.distributed's process groups."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import json
import operator
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist

from . import _library, arguments
from ._library import ZeroppError


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Bytes that this rank has sent within its node (`intra_node`), to other nodes of its site (`inter_node`) and to other
    sites (`inter_site`), and the number of collectives (`calls`). Without sites, all nodes are of one."""

    intra_node: int = 0
    inter_node: int = 0
    calls: int = 0
    inter_site: int = 0

    @property
    def bytes(self) -> int:
        """Bytes to all other ranks."""
        return self.intra_node + self.inter_node + self.inter_site

    @property
    def between_nodes(self) -> int:
        """Bytes to other nodes, of this site and of others."""
        return self.inter_node + self.inter_site

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*map(operator.add, dataclasses.astuple(self), dataclasses.astuple(other)))

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(*map(operator.sub, dataclasses.astuple(self), dataclasses.astuple(other)))


class Places(NamedTuple):
    """Where the ranks of a group are: the node of each, and the nodes of a site, node n in site n // nodes_per_site. None is
    no sites: all nodes are of one."""

    nodes: list[int]
    nodes_per_site: int | None = None

    @staticmethod
    def of(ranks: Sequence[int], ranks_per_node: int, nodes_per_site: int | None) -> Places:
        """The places of `ranks` of the world, on nodes of consecutive ranks."""
        return Places([rank // ranks_per_node for rank in ranks], nodes_per_site)

    def for_library(self) -> tuple[ctypes.Array, int, int]:
        """Nodes, nodes of a site and number of ranks, as the library takes them. Raises ZeroppError for numbers beyond its own."""
        if (largest := max([0, self.nodes_per_site or 0, *self.nodes])) > 0x7FFFFFFF:
            raise ZeroppError(f"zeropp_torch: expected nodes, and nodes_per_site, below 2^31, given {largest}")
        return (ctypes.c_int * len(self.nodes))(*self.nodes), self.nodes_per_site or 0, len(self.nodes)

    def sites(self) -> list[list[list[int]]]:
        """The ranks of the group by site and node, as the library numbers them."""
        by_site: dict[int, dict[int, list[int]]] = {}
        for rank, node in enumerate(self.nodes):
            site = 0 if self.nodes_per_site is None else node // self.nodes_per_site
            by_site.setdefault(site, {}).setdefault(node, []).append(rank)
        return [list(nodes.values()) for nodes in by_site.values()]

    def hops(self) -> int:
        """The number of levels with several members."""
        sites = self.sites()
        return sum(most > 1 for most in (len(sites), max(map(len, sites)), max(len(n) for s in sites for n in s)))


def volume(
    function: str, formats: Sequence[str | None], elements: int, places: Places, rank: int, two_shot: bool = False
) -> Traffic:
    """Traffic of `rank` in one call of the library's `function`, a collective. `formats` are by level for a reduction; None is
    left out."""
    loaded = _library.library("cpu")
    sent = (ctypes.c_uint64 * 3)()
    nodes, per_site, size = places.for_library()
    first, second = map(_library.text_of, (formats[0], " + ".join(name for name in formats[1:] if name is not None)))
    status = loaded.zeropp_volume_in_sites(
        function.encode(), first, second, elements, int(two_shot), nodes, per_site, size, rank, sent
    )
    _library.require_success(loaded, status)
    return Traffic(sent[0], sent[1], 1, sent[2])


_enabled = True


def enabled() -> bool:
    """True if models use zeropp's collectives: outside of disabled()."""
    return _enabled


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Context in which models use torch.distributed's own collectives, for comparisons. All ranks must enter it."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


# The first names exist since torch 2.13, which deprecates the others.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


# Bytes of each rank from which exchange() takes less time than gloo's all-gather, which copies the result once more.
EXCHANGED_BYTES = 512 << 10
# Tag of exchange()'s messages, so that they meet no others.
_TAG = 0x7A70


def exchange(all_bytes: torch.Tensor, own: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Gathers every rank's `own` bytes into `all_bytes`: each rank sends to each. `own` may be its part of `all_bytes`."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    parts = all_bytes.view(size, -1)
    if parts[rank].data_ptr() != own.data_ptr():
        parts[rank].copy_(own)
    others = [(rank + distance) % size for distance in range(1, size)]
    messages = [dist.irecv(parts[other], group=group, group_src=other, tag=_TAG) for other in reversed(others)]
    messages += [dist.isend(own, group=group, group_dst=other, tag=_TAG) for other in others]
    for message in messages:
        message.wait()


def new_group(parent: dist.ProcessGroup, members: Sequence[int], device: torch.device) -> dist.ProcessGroup:
    """Makes a group of `members`, ranks of `parent`, with its backend and timeout. All ranks of `parent` call it together, and
    must have made equally many groups before."""
    of = dist.get_process_group_ranks(parent)
    # torch names such a group by the number of groups in the process. Members with different numbers never meet.
    here = torch.tensor([len(dist.distributed_c10d._world.pg_names)], device=device)
    known = here.new_empty(len(of))
    all_gather_single(known, here, group=parent)
    if (known != here).any():
        raise ZeroppError(
            f"zeropp_torch: expected ranks that have made as many process groups, given {known.tolist()}; make zeropp's "
            "first, or make the others on all ranks, as dist.new_group wants it"
        )
    return dist.new_group(
        [of[member] for member in members],
        timeout=parent._get_backend(torch.device(device.type)).options._timeout,
        backend=str(dist.distributed_c10d.get_backend_config(parent)),
        use_local_synchronization=True,
    )


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} others" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _difference(name: str, by_rank: Mapping[int, Any]) -> str:
    """Says which ranks have given which values as `name`. The value of more than half of the ranks is that of "the others"."""
    ranks: dict[Any, list[int]] = {}
    for rank, value in by_rank.items():
        ranks.setdefault(value, []).append(rank)
    rarest_first = sorted(ranks.items(), key=lambda item: len(item[1]))
    most = 2 * len(rarest_first[-1][1]) > len(by_rank)
    return f"{name} " + ", ".join(
        f"{value} on {'the others' if most and of_value is rarest_first[-1][1] else _ranks(of_value)}"
        for value, of_value in rarest_first
    )


def require_agreement(
    groups: Sequence[dist.ProcessGroup], device: torch.device, what: str, given: Mapping[str, object]
) -> None:
    """Raises the same ZeroppError on all ranks unless all have equal `given`, values by name: it says which differ on which
    ranks. The ranks are one group's, or those of a mesh by one group for each dimension, the last dimension first. Each rank
    sends 48 bytes, those of its shards' ranks to other replicas, and `given` if it differs. On a GPU, this waits for the stream."""
    stated = json.dumps({name: repr(value) for name, value in given.items()}).encode()

    def of_all(own: bytes) -> list[bytes]:
        every = torch.frombuffer(bytearray(own), dtype=torch.uint8).to(device)
        for group in groups:
            known = every
            every = known.new_empty(dist.get_world_size(group) * known.numel())
            all_gather_single(every, known, group=group)
        everything = bytes(every.tolist())
        return [everything[begin : begin + len(own)] for begin in range(0, len(everything), len(own))]

    digests = of_all(hashlib.sha256(stated).digest() + struct.pack("qq", dist.get_rank(), len(stated)))
    if all(digest[:32] == digests[0][:32] for digest in digests):
        return
    ranks, sizes = zip(*(struct.unpack("qq", digest[32:]) for digest in digests))
    by_rank = {rank: json.loads(text) for rank, text in zip(ranks, of_all(stated.ljust(max(sizes))))}
    names = dict.fromkeys(name for values in by_rank.values() for name in values)
    every_value = {name: {rank: values.get(name, "nothing") for rank, values in by_rank.items()} for name in names}
    raise ZeroppError(
        f"{what}: expected the same on every rank, given "
        + "; ".join(_difference(name, values) for name, values in every_value.items() if len(set(values.values())) > 1)
    )


def require_places(ranks: Sequence[int], places: Places) -> None:
    """Raises ZeroppError if the library refuses `places`, or if torch, which sorts a new group's ranks, would number nodes,
    columns or sites otherwise than the library.

    `ranks` are the group's ranks of the world. The library numbers a node's ranks by their order in the group, and a column's
    by node. A column has one rank of each node of a site: smaller nodes serve the columns of the largest in rounds.
    """
    volume("zeropp_all_gather", ["fp32"], 0, places, 0)
    if places.hops() < 2:
        return
    sites = [[[ranks[member] for member in of] for of in site] for site in places.sites()]
    groups = [of for site in sites for of in site]
    for site in sites:
        most = max(map(len, site))
        groups += [[of[c - min(c // len(of) * len(of), most - len(of))] for of in site] for c in range(most)]
    # Ranks of one index, on the nodes of one number.
    groups += [[of[index] for of in nodes] for nodes in zip(*sites) for index in range(min(map(len, nodes)))]
    if any(members != sorted(members) for members in groups):
        raise ZeroppError(
            f"zeropp_torch: expected nodes whose ranks follow one another in one order, given nodes {list(places.nodes)}"
        )


class _Turns:
    """The calls on a process group. Ranks match calls by their order alone, and several threads' calls have no order."""

    def __init__(self) -> None:
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None
        self._refused = ""

    @contextlib.contextmanager
    def turn(self, of_any_thread: bool) -> Iterator[None]:
        """Context of one call. Raises ZeroppError for a call during another one, or from another thread than the first call's
        unless it may be `of_any_thread`; and for all calls after such a call."""
        here = threading.current_thread()
        if not self._running.acquire(blocking=False):
            self._refuse(here)
        try:
            if not of_any_thread:
                # A thread that has ended passes its turn on.
                if self._thread is None or not self._thread.is_alive():
                    self._thread = here
                if self._thread is not here:
                    self._refuse(here)
            self._require_order()
            yield
            self._require_order()
        finally:
            self._running.release()

    def _refuse(self, thread: threading.Thread) -> NoReturn:
        first = self._thread.name if self._thread is not None else "another"
        self._refused = (
            f"zeropp_torch: expected calls on a process group from one thread, {first}, given one from {thread.name}; ranks "
            "match calls by their order, so a thread takes a group of its own: dist.new_group()"
        )
        self._require_order()

    def _require_order(self) -> None:
        if self._refused:
            raise ZeroppError(self._refused)


# Of a process group, because its communicators share the order of its calls.
_turns: weakref.WeakKeyDictionary[dist.ProcessGroup, _Turns] = weakref.WeakKeyDictionary()

# The exception of a thread's last callback that failed. Callbacks run on the calling thread.
_raised = threading.local()


def _guarded(method: Callable[..., int], failed: int = 1) -> Callable[..., int]:
    """Wraps a bound method for ctypes, which swallows exceptions: keeps them for call(), and returns `failed`. The method's
    object is not kept alive: an object that keeps its callbacks still ends with the last reference to it."""
    known = weakref.WeakMethod(method)

    def guarded(*arguments: Any) -> int:
        try:
            return known()(*arguments)
        except BaseException as raised:  # noqa: BLE001 - call() raises it, also a KeyboardInterrupt
            _raised.by_callback = raised
            return failed

    return guarded


class _DeviceBytes:
    """Device memory in the form that torch.as_tensor reads."""

    def __init__(self, address: int, size: int):
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None
        }


class Communicator:
    """The ranks of a process group, in nodes of `ranks_per_node` consecutive ranks, or on `nodes` (each rank's node). With
    `nodes_per_site`, node n is in site n // nodes_per_site. Sites are joined by slower links, and collectives take a third
    hop. Several sites have as many nodes each, of one size.

    All ranks of the group make it together; if their arguments differ, all raise the same ZeroppError. With several nodes
    of several ranks, it makes a process group for each node and for each rank's counterparts, and also for its
    counterparts in other sites.

    Tensors are on `device`; "cuda" is the current CUDA device. Collectives block on CPU tensors, and are enqueued on the
    current stream for CUDA tensors. They run one at a time, in the same order on all ranks. So a process group's calls, by all
    its communicators, are those of one thread while it lives: a call from another one, except in backward on a GPU, and
    each later call on that group raise a ZeroppError. Exceptions of torch.distributed are passed on; timeouts are the process group's.

    The first `compared_calls` collectives compare the ranks' calls before they move data: function, name, elements, type and
    formats. If calls differ, or one rank's call is refused, all ranks raise a ZeroppError.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        ranks_per_node: int | None = None,
        nodes: Sequence[int] | None = None,
        nodes_per_site: int | None = None,
        device: torch.device | str = "cpu",
        compared_calls: int = 32,
    ):
        arguments.instance("Communicator", "group", group, (dist.ProcessGroup, type(None)), "a group of this rank, or None")
        group = group if group is not None else dist.group.WORLD
        device = torch.device(device)
        self._library = _library.library(device.type)
        # Tensors are on cuda:N, and on cpu without a number; frameworks also say cuda and cpu:0.
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        elif device.type == "cpu":
            device = torch.device("cpu")
        self.device = device
        self.size = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        given = {
            "device": device.type, "compared_calls": compared_calls, "ranks_per_node": ranks_per_node, "nodes": nodes,
            "nodes_per_site": nodes_per_site,
        }
        require_agreement([group], device, "Communicator", given)
        arguments.integer("Communicator", "compared_calls", compared_calls, 0)
        if nodes is not None and ranks_per_node is not None:
            raise ZeroppError("zeropp_torch: expected either ranks_per_node or nodes, given both")
        if nodes is None:
            per_node = self.size if ranks_per_node is None else ranks_per_node
            if self.size % arguments.integer("Communicator", "ranks_per_node", per_node, 1) != 0:
                raise ZeroppError(
                    f"zeropp_torch: expected ranks_per_node to divide the group's {self.size} ranks, given {per_node}"
                )
            nodes = [rank // per_node for rank in range(self.size)]
        for node in arguments.instance("Communicator", "nodes", nodes, Sequence, "a sequence"):
            arguments.integer("Communicator", "each node", node, 0)
        if len(nodes) != self.size:
            raise ZeroppError(f"zeropp_torch: expected a node for each of {self.size} ranks, given {len(nodes)}")
        if nodes_per_site is not None:
            arguments.integer("Communicator", "nodes_per_site", nodes_per_site, 1)
        self.places = Places(list(nodes), nodes_per_site)
        require_places(dist.get_process_group_ranks(group), self.places)
        self._groups = [group]
        self._turns = _turns.setdefault(group, _Turns())
        # Kept until the next message. If gloo's thread released a tensor last, it would wait for Python, with its group locked.
        self._moved: tuple[torch.Tensor, ...] = ()
        # The library may call these until the communicator is destroyed.
        self._callbacks = _library.Callbacks(
            None,
            _library.MOVE(_guarded(self._all_gather)),
            _library.MOVE(_guarded(self._all_to_all)),
            _library.SPLIT(_guarded(self._split, failed=-1)),
        )
        handle = ctypes.c_void_p()
        self._handle = None
        self.call(
            "zeropp_communicator_create_in_sites",
            *self.places.for_library(),
            self.rank,
            self._callbacks,
            ctypes.byref(handle),
        )
        self._handle = handle
        self.compare(compared_calls)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._library.zeropp_communicator_destroy(self._handle)

    @property
    def handle(self) -> ctypes.c_void_p:
        return self._handle

    def traffic(self) -> Traffic:
        """Bytes and collectives of this rank, through this communicator. Comparisons are not counted."""
        sent, calls = (ctypes.c_uint64 * 3)(), ctypes.c_uint64()
        self._library.zeropp_traffic_in_sites(self._handle, sent, ctypes.byref(calls))
        return Traffic(sent[0], sent[1], calls.value, sent[2])

    def compare(self, calls: int) -> None:
        """Compares `calls` more collectives before they move data; the number must be equal on all ranks. Each rank sends
        0.9 KB for a collective, twice that for an update, and waits for the others."""
        # ctypes would cut a larger number without a word.
        most = min(arguments.integer("compare", "calls", calls, 0), (1 << 64) - 1)
        self._library.zeropp_compare(self._handle, most)

    def collective(self, function: str, name: str, prepare: Callable[[], tuple[object, ...]]) -> None:
        """Calls `function`, a collective called `name`, with the arguments `prepare()`. If that raises an exception, all ranks
        that compare the call raise a ZeroppError."""
        # On a GPU, autograd runs backward on other threads.
        with self._turns.turn(of_any_thread=self.device.type == "cuda" and torch._C._current_graph_task_id() != -1):
            try:
                self._library.zeropp_name(
                    self._handle, _library.text_of(arguments.instance(function, "name", name, str, "a string"))
                )
                given = prepare()
            except Exception as refused:  # noqa: BLE001 - the others would wait
                stream = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else None
                problem = str(refused) if isinstance(refused, ZeroppError) else repr(refused)
                words = _library.text_of(problem.replace("\0", "\\0"))
                self.call("zeropp_refuse", self._handle, function.encode(), words, stream)
            else:
                self.call(function, self._handle, *given)

    def call(self, function: str, *arguments: object) -> None:
        """Calls a library function that returns a status. Raises a callback's exception, or ZeroppError for other failures."""
        _raised.by_callback = None
        with _library.on_device(self.device):
            status = getattr(self._library, function)(*arguments)
        if status == _library.CALLBACK_FAILED:
            raised, _raised.by_callback = _raised.by_callback, None
            raise raised if raised is not None else ZeroppError("zeropp_torch: a callback has failed")
        _library.require_success(self._library, status)

    def require_tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        """Raises ZeroppError unless `tensors` have one element type and are on this communicator's device."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and tensor.device != self.device:
                raise ZeroppError(f"zeropp_torch: expected tensors on {self.device}, given one on {tensor.device}")
            _library.require_tensor(tensor)
            if tensor.dtype != tensors[0].dtype:
                raise ZeroppError(
                    f"zeropp_torch: expected tensors of one type, {tensors[0].dtype}, given one of {tensor.dtype}; "
                    "tensors of another type take a call of their own"
                )

    def _bytes(self, address: int | None, size: int) -> torch.Tensor:
        if self.device.type == "cuda":
            return torch.as_tensor(_DeviceBytes(address or 0, size), device=self.device)
        return torch.frombuffer(_library.memory(address, size), dtype=torch.uint8)

    def _on(self, stream: int | None) -> contextlib.AbstractContextManager[object]:
        """Context in which `stream` is CUDA's current one: a call's, which is that already, or one of the library's own."""
        if self.device.type == "cpu" or torch.cuda.current_stream(self.device).cuda_stream == (stream or 0):
            return contextlib.nullcontext()
        return torch.cuda.stream(torch.cuda.ExternalStream(stream, device=self.device))

    def _all_gather(self, _context, number, stream, send, receive, size) -> int:
        group = self._groups[number]
        self._moved = self._bytes(receive, size * dist.get_world_size(group)), self._bytes(send, size)
        if self.device.type == "cpu" and size >= EXCHANGED_BYTES:
            exchange(*self._moved, group)
        else:
            with self._on(stream):
                all_gather_single(*self._moved, group=group)
        return 0

    def _all_to_all(self, _context, number, stream, send, receive, size) -> int:
        group = self._groups[number]
        total = size * dist.get_world_size(group)
        self._moved = self._bytes(receive, total), self._bytes(send, total)
        with self._on(stream):
            dist.all_to_all_single(*self._moved, group=group)
        return 0

    def _split(self, _context, number, members, count) -> int:
        self._groups.append(new_group(self._groups[number], members[:count], self.device))
        return len(self._groups) - 1
