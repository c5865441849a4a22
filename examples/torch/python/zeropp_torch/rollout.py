"""Weights for rollouts: a trainer's ranks publish versions of their shards as files of a directory, from which any processes
bring their own copies up to date. Versions are to the bit, and mostly exact differences from the version before.

Of each version, every rank that owns elements writes a file RUN.VERSION.RANK-of-RANKS.KIND; the version is complete when all
of these are there. KIND is "differences" or "whole"; some versions have both. A file is a line of JSON, the rank's elements,
and 32 bytes of SHA-256. RUN_FILE names the current RUN.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import hashlib
import itertools
import json
import math
import operator
import os
import pathlib
import re
import secrets
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, NoReturn, Optional, Union

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard
from torch.multiprocessing.reductions import StorageWeakRef

from . import _library, arguments
from ._library import ZeroppError

Weights = Union[nn.Module, Mapping[str, torch.Tensor]]

RUN_FILE = "run"
DIFFERENCES, WHOLE = "differences", "whole"

#: Elements of one message of exact differences: 2 MB of weights, and as much of old ones, stay in a processor's caches.
_PIECE = 1 << 20
_FILE = re.compile(r"(?P<run>[0-9a-f]{16})\.(?P<version>\d+)\.(?P<rank>\d+)-of-(?P<ranks>\d+)\.(?P<kind>differences|whole)")
_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_HASH_BYTES = 32
#: Seconds between two looks at the directory.
_POLL = 0.02


def _tensors(function: str, weights: Weights) -> dict[str, torch.Tensor]:
    """Tensors with elements, by name."""
    arguments.instance(function, "weights", weights, (nn.Module, Mapping), "a module, or tensors by name")
    # A sharded module's own hook makes parameters sharded again.
    given = weights.state_dict(keep_vars=True) if isinstance(weights, nn.Module) else weights
    for name, tensor in given.items():
        arguments.instance(function, name, tensor, torch.Tensor, "a tensor")
    return {name: tensor.detach() for name, tensor in given.items() if tensor.numel() != 0}


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where the elements of `tensor` are. While a place is kept, no tensor that is made later has an equal one, though it may get
    the address of freed memory."""
    held = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return StorageWeakRef(held.untyped_storage()), held.data_ptr(), held.dtype, held.shape, held.stride()


def _untied(function: str, weights: Weights) -> dict[str, torch.Tensor]:
    """As _tensors(); of several names of one memory, as tied weights have, the first."""
    found: dict[tuple[Any, ...], tuple[str, torch.Tensor]] = {}
    for name, tensor in _tensors(function, weights).items():
        found.setdefault(_place(tensor), (name, tensor))
    return dict(found.values())


def _memory(tensor: torch.Tensor, first: int, count: int) -> memoryview:
    """The bytes of `count` elements of a contiguous tensor in host memory, from element `first` on."""
    size = tensor.element_size()
    return _library.memory(tensor.data_ptr() + first * size, count * size)


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    """The first element and the number of elements of each message of `count` elements."""
    return ((first, min(_PIECE, count - first)) for first in range(0, count, _PIECE))


def weights_digest(weights: Weights) -> str:
    """SHA-256, in hexadecimal digits, of the names, types, shapes and bits of `weights`: plain tensors, in any memory. Of tied
    weights, the first name counts. Reads all bits, for tests and comparisons; `Subscriber.digest` does not."""
    digest = hashlib.sha256()
    for name, tensor in sorted(_untied("weights_digest", weights).items()):
        _library.require_tensor(tensor)
        held = tensor.cpu()
        digest.update(json.dumps([name, str(held.dtype), list(held.shape)]).encode())
        digest.update(_memory(held, 0, held.numel()))
    return digest.hexdigest()


class _Owned(NamedTuple):
    """A rank's elements of a tensor: `count` of them, from element `first` on."""

    name: str
    type: str
    shape: tuple[int, ...]
    first: int
    count: int

    @staticmethod
    def of(name: Any, type: Any, shape: Any, first: Any, count: Any) -> _Owned:
        """The elements that a header states. Raises KeyError, TypeError or ValueError if it cannot be one."""
        _TYPES[type]
        return _Owned(str(name), type, tuple(map(operator.index, shape)), operator.index(first), operator.index(count))


def _own(name: str, tensor: torch.Tensor, rank: int) -> tuple[torch.Tensor, int]:
    """The elements of `tensor` that this rank publishes, perhaps none, and the index of the first one in the whole tensor. One
    rank publishes a replicated tensor or shard."""
    if not isinstance(tensor, DTensor):
        return (tensor if rank == 0 else tensor.new_empty(0)), 0
    divided = [placement for placement in tensor.placements if not placement.is_replicate()]
    if len(divided) > 1 or any(type(placement) is not Shard or placement.dim != 0 for placement in divided):
        raise ZeroppError(f"Publisher: expected {name} sharded once, in dimension 0, given {tensor.placements}")
    held, first = tensor.to_local(), 0
    coordinates = tensor.device_mesh.get_coordinate()
    for size, coordinate, placement in zip(tensor.device_mesh.shape, coordinates or (), tensor.placements):
        if not placement.is_replicate():
            # As torch.chunk divides rows.
            first = min(coordinate * -(-tensor.shape[0] // size), tensor.shape[0]) * math.prod(tensor.shape[1:])
        elif coordinate != 0:
            held = held.new_empty(0)
    return held, first


@dataclasses.dataclass(frozen=True)
class Published:
    """A rank's share of a version. All but `version` and `seconds` are 0 on a rank that owns nothing, as of further replicas."""

    version: int
    #: Bytes of the file for subscribers of the version before; of a first version, of the file of whole weights.
    bytes: int
    #: Bytes of the weights in 16 bits.
    whole_bytes: int
    #: True if whole weights were written, too.
    whole: bool
    #: Time of the call.
    seconds: float


class Publisher:
    """Publishes weights from the ranks of a training in `directory`, which they and all `Subscriber`s see.

    `weights` is a module, or tensors by name: DTensors of FSDP2 and HSDP, or plain tensors, which rank 0 publishes. Tied
    weights are published once. Weights of 16 bits keep their type; float32 is rounded to `dtype`, bfloat16 or float16. Keeps 2
    bytes for each element that this rank publishes. Every `whole_every` versions, a version is also written whole, where late
    subscribers begin. The files of at most 2 * `whole_every` versions stay.

    All ranks of `group` (default: all) make a Publisher together, and refuse arguments together. A new one on an old directory
    begins a new run: it goes on with the numbers of versions, and removes the files of other runs.
    """

    def __init__(
        self, weights: Weights, directory: Union[str, os.PathLike[str]], *, group: Optional[dist.ProcessGroup] = None,
        dtype: torch.dtype = torch.bfloat16, whole_every: int = 32,
    ):
        self._weights = weights
        self._dtype = dtype
        self._whole_every = whole_every
        distributed = dist.is_initialized()
        self._group_rank = dist.get_rank(group) if distributed else 0
        stated: dict[str, Any] = {"problem": None}
        try:
            arguments.integer("Publisher", "whole_every", whole_every, 1)
            if dtype not in _TYPES.values():
                raise ZeroppError(f"Publisher: expected dtype as torch.bfloat16 or torch.float16, given {dtype}")
            arguments.instance("Publisher", "directory", directory, (str, os.PathLike), "a path")
            self._directory = pathlib.Path(directory)
            self._directory.mkdir(parents=True, exist_ok=True)
            whole, own = self._owned()
            self._table = [owned for owned, _ in own]
            self._kept = [torch.empty(owned.count, dtype=_TYPES[owned.type], device="cpu") for owned in self._table]
            stated |= {"whole": whole, "elements": sum(owned.count for owned in self._table), "whole_every": whole_every}
            newest = max((int(file["version"]) for file, _ in self._files()), default=0)
            stated |= {"run": secrets.token_hex(8), "version": newest}
        except Exception as problem:  # noqa: BLE001 - the others would wait
            stated["problem"] = str(problem) if isinstance(problem, (ZeroppError, OSError)) else repr(problem)
        of_ranks = [stated]
        if distributed:
            of_ranks = [{}] * dist.get_world_size(group)
            dist.all_gather_object(of_ranks, stated, group)
        for rank, of_rank in enumerate(of_ranks):
            if of_rank["problem"] is not None:
                raise ZeroppError(of_rank["problem"])
            for name in ("whole", "whole_every"):
                if of_rank[name] != of_ranks[0][name]:
                    words = "names, types and shapes" if name == "whole" else name
                    raise ZeroppError(f"Publisher: expected equal {words} on all ranks, given others on rank {rank}")
        elements = sum(of_rank["elements"] for of_rank in of_ranks)
        if elements != stated["whole"][1]:
            raise ZeroppError(
                f"Publisher: expected a group that has all {stated['whole'][1]} elements once, given one with {elements}"
            )
        self._whole_table = stated["whole"][0]
        self._run: str = of_ranks[0]["run"]
        self._first: int = of_ranks[0]["version"] + 1
        self._version = self._first - 1
        writers = [rank for rank, of_rank in enumerate(of_ranks) if of_rank["elements"] != 0]
        self._rank = writers.index(self._group_rank) if self._group_rank in writers else None
        self._ranks = len(writers)
        #: Hash of all that this rank has published; empty if the next version must be whole.
        self._chain = b""
        self._written: collections.deque[tuple[int, pathlib.Path]] = collections.deque()
        if self._group_rank == 0:
            self._begin_run()

    def _files(self) -> list[tuple[re.Match[str], pathlib.Path]]:
        """Files of versions in the directory, temporary ones included."""
        listed = ((_FILE.match(path.name), path) for path in self._directory.iterdir())
        return [(file, path) for file, path in listed if file is not None]

    def _begin_run(self) -> None:
        temporary = self._directory / f"{RUN_FILE}.{self._run}"
        temporary.write_text(self._run)
        os.replace(temporary, self._directory / RUN_FILE)
        for file, path in self._files():
            if file["run"] != self._run:
                path.unlink(missing_ok=True)

    def _owned(self) -> tuple[tuple[str, int], list[tuple[_Owned, torch.Tensor]]]:
        """A digest of all tensors' names, types and shapes, with their number of elements; and this rank's elements."""
        table, own, elements = [], [], 0
        for name, tensor in _untied("Publisher", self._weights).items():
            if tensor.dtype not in _library.ELEMENTS:
                types = ", ".join(map(str, _library.ELEMENTS))
                raise ZeroppError(f"Publisher: expected tensors of {types}, given {name} of {tensor.dtype}")
            kept = self._dtype if tensor.dtype == torch.float32 else tensor.dtype
            held, first = _own(name, tensor, self._group_rank)
            owned = _Owned(name, str(kept).removeprefix("torch."), tuple(tensor.shape), first, held.numel())
            table.append(owned[:3])
            elements += tensor.numel()
            if owned.count != 0:
                own.append((owned, held))
        return (hashlib.sha256(json.dumps(table).encode()).hexdigest(), elements), own

    @torch.no_grad()
    def publish(self) -> Published:
        """Writes the weights as the next version. Each rank calls it equally often, between the same steps.

        Takes the time to encode this rank's elements and to write its file; waits for no other rank and no subscriber. After an
        error, as of a full disk, the next version of this rank is whole. Subscribers then wait for the next version that all ranks
        write whole.
        """
        begin = time.perf_counter()
        # Also for a call that is refused: other ranks count theirs, and a version has all ranks' elements of one step.
        self._version += 1
        chain, self._chain = self._chain, b""
        whole, own = self._owned()
        if (whole[0], [owned for owned, _ in own]) != (self._whole_table, self._table):
            raise ZeroppError("Publisher: expected tensors with the names, types and shapes of the first version, given others")
        size, writes_whole = 0, False
        if self._rank is not None:
            writes_whole = not chain or (self._version - self._first) % self._whole_every == 0
            if chain:
                size, chain = self._write(DIFFERENCES, chain, {}, self._messages(own))
            else:
                for kept, (_, held) in zip(self._kept, own):
                    kept.copy_(held.reshape(-1))
            if writes_whole:
                header = {"chain": chain.hex(), "tensors": self._table}
                whole_size, digest = self._write(WHOLE, b"", header, self._elements())
                size, chain = size or whole_size, chain or digest
            self._chain = chain
            self._remove_old()
        whole_bytes = 2 * sum(owned.count for owned in self._table)
        return Published(self._version, size, whole_bytes, writes_whole, time.perf_counter() - begin)

    def _messages(self, own: list[tuple[_Owned, torch.Tensor]]) -> Iterator[Any]:
        """The differences of this rank's elements from the kept ones, each message behind its size. Kept ones become new."""
        loaded = _library.library("cpu")
        size = ctypes.c_size_t()
        _library.require_success(loaded, loaded.zeropp_exact_bytes(_PIECE, ctypes.byref(size)))
        room = bytearray(size.value)
        message = memoryview(room)
        address = (ctypes.c_uint8 * len(room)).from_buffer(room)
        for kept, (_, held) in zip(self._kept, own):
            if held.device.type != "cpu":
                held = held.to(kept.dtype).cpu()
            held = held.contiguous()
            for first, count in _pieces(kept.numel()):
                status = loaded.zeropp_encode_exact(
                    _library.ELEMENTS[held.dtype], held.data_ptr() + first * held.element_size(),
                    _library.ELEMENTS[kept.dtype], kept.data_ptr() + 2 * first, count, address, ctypes.byref(size),
                    _library.stream_of(kept.device),
                )
                _library.require_success(loaded, status)
                yield struct.pack("<I", size.value)
                yield message[: size.value]

    def _elements(self) -> Iterator[Any]:
        """This rank's elements as they are."""
        return (_memory(kept, *piece) for kept in self._kept for piece in _pieces(kept.numel()))

    def _write(self, kind: str, chain: bytes, header: dict[str, Any], contents: Iterable[Any]) -> tuple[int, bytes]:
        """Writes this rank's file of a kind. Returns its bytes, and its hash, which begins with `chain`."""
        path = self._directory / f"{self._run}.{self._version}.{self._rank}-of-{self._ranks}.{kind}"
        temporary = path.with_name(path.name + ".part")
        digest = hashlib.sha256(chain)
        named = {"run": self._run, "version": self._version, "rank": self._rank, "ranks": self._ranks, "kind": kind}
        try:
            with open(temporary, "wb") as file:
                for some in itertools.chain([json.dumps(named | header).encode() + b"\n"], contents):
                    digest.update(some)
                    file.write(some)
                file.write(digest.digest())
                size = file.tell()
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._written.append((self._version, path))
        return size, digest.digest()

    def _remove_old(self) -> None:
        """Removes this rank's files of versions before the second last that all ranks write whole. The last one may not be
        complete yet."""
        last = self._version - (self._version - self._first) % self._whole_every
        while self._written[0][0] < last - self._whole_every:
            self._written.popleft()[1].unlink(missing_ok=True)


class Subscriber:
    """Brings weights up to date with the versions that a `Publisher` writes to `directory`. Any number of processes may have
    one, without a process group; none of them writes anything, and the publisher does not know of them.

    Weights that are not contiguous bfloat16 or float16 in host memory, as on a GPU, are copied from copies that the Subscriber
    keeps, of 2 bytes for each element.
    """

    def __init__(self, directory: Union[str, os.PathLike[str]]):
        self._directory = pathlib.Path(directory)
        self._run: Optional[str] = None
        self._version: Optional[int] = None
        #: True if differences from `_version` may be applied.
        self._follows = False
        #: For each rank of the publisher, the hash of all that it has published up to `_version`, and its elements.
        self._chains: list[bytes] = []
        self._tables: list[list[_Owned]] = []
        self._kept: dict[str, torch.Tensor] = {}
        self._places: dict[str, tuple[Any, ...]] = {}

    @property
    def version(self) -> Optional[int]:
        """The version that the weights have; None before the first, and if they are lost."""
        return self._version

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal digits, of all that was published up to this version: if it is equal on two Subscribers,
        their weights are. Costs no pass over the weights."""
        return hashlib.sha256(b"".join(self._chains)).hexdigest()

    @torch.no_grad()
    def update(self, weights: Weights, version: Optional[int] = None, timeout: float = 60.0) -> int:
        """Applies all newer complete versions to `weights` in place, and returns the version that these have then.

        Waits at most `timeout` seconds until `weights` have `version` or a newer one; if it is None, until they have any.
        `weights` are a module, or tensors by name, with the published names, shapes, and types; float32 is also taken. A first
        call begins with the newest whole version. So does a call if the next differences are gone, or if `weights` are other
        tensors than in the last call. Nobody else may write to `weights`.

        Raises ZeroppError, also for a file that is cut, changed or foreign. The weights then have `self.version`, or are lost
        if it is None; the next call begins with a whole version.
        """
        if math.isnan(timeout):
            raise ZeroppError(f"Subscriber: expected timeout in seconds, given {timeout}")
        tensors = self._bind(weights)
        end = time.monotonic() + timeout
        while True:
            try:
                self._advance(tensors)
            except FileNotFoundError:
                # The publisher has removed a file since it was listed, and so has written newer whole weights.
                pass
            if self._version is not None and (version is None or self._version >= version):
                return self._version
            if time.monotonic() >= end:
                raise ZeroppError(
                    f"Subscriber: expected {'a version' if version is None else f'version {version}'} in {self._directory} "
                    f"within {timeout} s, given {self._version or 'none'}"
                )
            time.sleep(_POLL)

    def _bind(self, weights: Weights) -> dict[str, torch.Tensor]:
        tensors = _tensors("Subscriber", weights)
        for name, tensor in tensors.items():
            if isinstance(tensor, DTensor) or tensor.is_meta:
                raise ZeroppError(f"Subscriber: expected plain tensors with elements in memory, given {name} as another")
        places = {name: _place(tensor) for name, tensor in tensors.items()}
        if places != self._places:
            self._places = places
            self._version, self._follows = None, False
        return tensors

    def _current_run(self) -> Optional[str]:
        path = self._directory / RUN_FILE
        with contextlib.suppress(FileNotFoundError):
            run = path.read_bytes()
            if re.fullmatch(rb"[0-9a-f]{16}", run) is None:
                raise ZeroppError(f"Subscriber: expected {path} with the name of a run, given {run[:80]!r}")
            return run.decode()
        return None

    def _complete(self, run: str) -> dict[tuple[int, str], list[pathlib.Path]]:
        """The files of complete versions of a run, in the order of ranks, by version and kind."""
        found: dict[tuple[int, str, int], dict[int, pathlib.Path]] = {}
        for path in self._directory.iterdir():
            file = _FILE.fullmatch(path.name)
            if file is not None and file["run"] == run:
                of = int(file["version"]), file["kind"], int(file["ranks"])
                found.setdefault(of, {})[int(file["rank"])] = path
        return {
            (version, kind): [by_rank[rank] for rank in range(ranks)]
            for (version, kind, ranks), by_rank in found.items()
            if all(rank in by_rank for rank in range(ranks))
        }

    def _advance(self, tensors: dict[str, torch.Tensor]) -> None:
        """Applies the complete versions that are there."""
        run = self._current_run()
        if run is None:
            return
        complete = self._complete(run)
        newest = max((version for version, kind in complete if kind == WHOLE), default=0)
        before = self._run, self._version
        try:
            is_next = self._follows and run == self._run and self._version is not None
            if not is_next or ((self._version + 1, DIFFERENCES) not in complete and newest > self._version):
                if newest == 0:
                    return
                self._begin(run, newest, complete[newest, WHOLE], tensors)
            while (paths := complete.get((self._version + 1, DIFFERENCES))) is not None:
                self._follow(paths)
        finally:
            if self._version is not None and before != (self._run, self._version):
                # Until the end, as elements are copied to their places.
                copied, self._version = self._version, None
                for name, kept in self._kept.items():
                    if kept is not tensors[name]:
                        tensors[name].copy_(kept)
                self._version = copied

    def _refuse(self, path: pathlib.Path, expected: str) -> NoReturn:
        self._follows = False
        state = "are lost" if self._version is None else f"have version {self._version}"
        raise ZeroppError(f"Subscriber: expected {path} {expected}, given other bytes; the weights {state}")

    def _begin(self, run: str, version: int, paths: list[pathlib.Path], tensors: dict[str, torch.Tensor]) -> None:
        """Replaces the weights by a whole version."""
        with contextlib.ExitStack() as opened:
            files: list[BinaryIO] = [opened.enter_context(open(path, "rb")) for path in paths]
            lines = [file.readline() for file in files]
            tables, chains = [], []
            for path, line in zip(paths, lines):
                try:
                    header = json.loads(line)
                    tables.append([_Owned.of(*owned) for owned in header["tensors"]])
                    chains.append(bytes.fromhex(header["chain"]))
                except (KeyError, TypeError, ValueError):
                    self._refuse(path, "with a header of whole weights")
            try:
                self._match(tables, tensors)
            except ZeroppError as problem:
                raise ZeroppError(f"{problem}; published by {paths[0]}") from None
            # Until the end, as elements are read to their places.
            self._version, self._follows = None, False
            for rank, (path, file, line, table) in enumerate(zip(paths, files, lines, tables)):
                digest = hashlib.sha256(line)
                for owned in table:
                    for first, count in _pieces(owned.count):
                        memory = _memory(self._kept[owned.name], owned.first + first, count)
                        if file.readinto(memory) != len(memory):
                            self._refuse(path, "with all elements")
                        digest.update(memory)
                if file.read(_HASH_BYTES + 1) != digest.digest():
                    self._refuse(path, "with the bytes of its hash")
                chains[rank] = chains[rank] or digest.digest()
        self._run, self._version, self._follows = run, version, True
        self._chains, self._tables = chains, tables

    def _match(self, tables: list[list[_Owned]], tensors: dict[str, torch.Tensor]) -> None:
        """Makes copies where weights cannot be written in place. Raises ZeroppError unless `tables` have each element once."""
        published: dict[str, list[_Owned]] = {}
        for owned in (owned for table in tables for owned in table):
            published.setdefault(owned.name, []).append(owned)
        memory = {tensors[name].data_ptr() for name in published if name in tensors}
        # A tied weight is published by one of its names.
        unpublished = [name for name, t in tensors.items() if name not in published and t.data_ptr() not in memory]
        missing = [name for name in published if name not in tensors]
        for names, words in ((missing, "without"), (unpublished, "with further ones, as")):
            if names:
                more = f" and {len(names) - 1} others" if len(names) > 1 else ""
                raise ZeroppError(f"Subscriber: expected weights with the published names, given some {words} {names[0]}{more}")
        kept, addresses = {}, {}
        for name, of_name in published.items():
            if (other := addresses.setdefault(tensors[name].data_ptr(), name)) != name:
                raise ZeroppError(f"Subscriber: expected {name} with memory of its own, as published, given that of {other}")
            tensor, shape, dtype, end = tensors[name], of_name[0].shape, _TYPES[of_name[0].type], 0
            if tuple(tensor.shape) != shape or tensor.dtype not in (dtype, torch.float32):
                raise ZeroppError(
                    f"Subscriber: expected {name} of shape {list(shape)} and {dtype}, given {list(tensor.shape)} and "
                    f"{tensor.dtype}"
                )
            for owned in sorted(of_name, key=lambda owned: owned.first):
                if owned[1:3] != of_name[0][1:3] or owned.first != end or owned.count < 1:
                    raise ZeroppError(f"Subscriber: expected each element of {name} once, given {of_name}")
                end += owned.count
            if end != tensor.numel():
                raise ZeroppError(f"Subscriber: expected {tensor.numel()} elements of {name}, given {end}")
            in_place = tensor.device.type == "cpu" and tensor.dtype == dtype and tensor.is_contiguous()
            kept[name] = tensor if in_place else torch.empty(tensor.shape, dtype=dtype, device="cpu")
        self._kept = kept

    def _follow(self, paths: list[pathlib.Path]) -> None:
        """Applies differences from this version."""
        files = [path.read_bytes() for path in paths]
        chains = []
        for path, chain, file in itertools.zip_longest(paths, self._chains, files):
            if chain is None or file is None:
                raise ZeroppError(f"Subscriber: expected files of {len(self._chains)} ranks, given {len(files)}")
            digest = hashlib.sha256(chain)
            digest.update(memoryview(file)[:-_HASH_BYTES])
            chains.append(digest.digest())
            if chains[-1] != file[-_HASH_BYTES:]:
                self._refuse(path, f"with the hash of version {self._version} and its own bytes")
        version, self._version = self._version, None
        for path, table, file in zip(paths, self._tables, files):
            self._decode(path, table, file)
        self._version = version + 1
        self._chains = chains

    def _decode(self, path: pathlib.Path, table: list[_Owned], file: bytes) -> None:
        loaded = _library.library("cpu")
        address = ctypes.cast(file, ctypes.c_void_p).value
        begin, end = file.index(b"\n") + 1, len(file) - _HASH_BYTES
        for owned in table:
            kept = self._kept[owned.name]
            for first, count in _pieces(owned.count):
                size = int.from_bytes(file[begin : begin + 4], "little")
                begin += 4
                if size > end - begin or loaded.zeropp_decode_exact(
                    _library.ELEMENTS[kept.dtype], address + begin, size, kept.data_ptr() + 2 * (owned.first + first), count,
                    _library.stream_of(kept.device),
                ) != _library.SUCCESS:
                    self._refuse(path, "with exact differences")
                begin += size
        if begin != end:
            self._refuse(path, "with exact differences")
