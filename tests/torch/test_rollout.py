"""Weights for rollouts: what subscribers have, beside what was published."""

import ctypes
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
import zeropp_torch as zeropp
from models import batch, loss_of, network, refusals, shard, whole_parameters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from zeropp_torch import _library, rollout

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "torch" / "rollout.py"
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
ALL_BITS = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)


def bits(tensor):
    return tensor.detach().contiguous().view(torch.int16)


def encoded(tensor, old):
    """The message of `tensor`, whose elements are then in `old`."""
    library, size = _library.library("cpu"), ctypes.c_size_t()
    _library.require_success(library, library.zeropp_exact_bytes(tensor.numel(), ctypes.byref(size)))
    message = ctypes.create_string_buffer(size.value)
    status = library.zeropp_encode_exact(
        _library.ELEMENTS[tensor.dtype], tensor.data_ptr(), _library.ELEMENTS[old.dtype], old.data_ptr(), tensor.numel(),
        message, ctypes.byref(size), _library.stream_of(old.device),
    )
    _library.require_success(library, status)
    return message.raw[: size.value]


def decoded(message, old):
    """Whether `message` was decoded in place of `old`."""
    library = _library.library("cpu")
    # A buffer of exactly these bytes.
    exactly = (ctypes.c_uint8 * len(message)).from_buffer_copy(message)
    return library.zeropp_decode_exact(
        _library.ELEMENTS[old.dtype], ctypes.addressof(exactly), len(message), old.data_ptr(), old.numel(),
        _library.stream_of(old.device),
    ) == _library.SUCCESS


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_messages_bring_old_elements_to_the_new_bits(dtype):
    shuffled = ALL_BITS[torch.randperm(len(ALL_BITS), generator=torch.Generator().manual_seed(1))]
    for new_bits, old_bits in ((shuffled, ALL_BITS), (ALL_BITS + 1, ALL_BITS), (ALL_BITS, ALL_BITS)):
        for size in (0, 1, 255, 4097, 1 << 16):
            new, old = new_bits[:size].view(dtype), old_bits[:size].clone().view(dtype)
            theirs = old.clone()
            message = encoded(new, old)
            assert decoded(message, theirs)
            assert torch.equal(bits(old), bits(new)) and torch.equal(bits(theirs), bits(new))
            assert len(message) <= 1.01 * 2 * size + 16
    # Two parts of a pool of threads, few changes.
    new = torch.randn(150001, generator=torch.Generator().manual_seed(2))
    old = new.to(dtype)
    theirs = old.clone()
    new += 1e-5
    message = encoded(new, old)
    assert torch.equal(bits(old), bits(new.to(dtype))) and decoded(message, theirs)
    assert torch.equal(bits(theirs), bits(old)) and len(message) < 0.25 * 2 * len(new)


def test_other_bytes_are_no_message():
    draws = torch.Generator().manual_seed(3)
    old = torch.randn(5000, generator=draws).to(BF16)
    message = encoded(torch.where(torch.rand(5000, generator=draws) < 0.3, old.float() * 1.01, old.float()), old.clone())
    for size in range(0, len(message), 3):
        assert not decoded(message[:size], old.clone())
    for at in torch.randint(8 * len(message), (1000,), generator=draws).tolist():
        flipped = bytearray(message)
        flipped[at // 8] ^= 1 << at % 8
        decoded(flipped, old.clone())  # Either way: a flipped code is another one.
    wrong = {
        "zeropp_encode_exact: expected old elements of 16 bits, given fp32": lambda: encoded(old, torch.zeros(5000)),
        "zeropp_encode_exact: expected elements of the old elements' type or of fp32, given fp16":
            lambda: encoded(old.to(FP16), old),
    }
    assert refusals(wrong) == []


class Run:
    """A publisher, a copy of each published version, and empty weights for subscribers."""

    def __init__(self, folder, monkeypatch, **options):
        monkeypatch.setattr(rollout, "_PIECE", 5000)  # Several messages a tensor.
        self.draws = torch.Generator().manual_seed(4)
        self.weights = {
            "bits": ALL_BITS.clone().view(BF16), "half": torch.randn(7001, generator=self.draws).to(FP16),
            "master": torch.randn(31, 337, generator=self.draws), "one": torch.randn((), generator=self.draws),
            "none": torch.empty(0, 3), "transposed": torch.randn(40, 50, generator=self.draws).t(),
        }
        self.weights["tied"] = self.weights["master"]
        self.publisher = zeropp.Publisher(self.weights, folder, **options)
        self.folder, self.versions = folder, {}

    def publish(self):
        published = self.publisher.publish()
        self.versions[published.version] = {
            name: (tensor.to(BF16) if tensor.dtype == FP32 else tensor).clone() for name, tensor in self.weights.items()
        }
        for name, tensor in self.weights.items():
            if name not in ("bits", "tied", "none"):
                tensor += 1e-3 * torch.randn(tensor.shape, generator=self.draws)
        changed = torch.rand(1 << 16, generator=self.draws) < 0.1
        bits(self.weights["bits"])[changed] += 1  # NaN, infinities and signs too.
        return published

    def empty(self):
        made = {name: torch.full_like(tensor, 7) for name, tensor in self.versions[min(self.versions)].items()}
        made["tied"] = made["master"]
        return made

    def assert_version(self, weights, version):
        for name, tensor in self.versions[version].items():
            assert torch.equal(bits(weights[name]), bits(tensor)), name

    def file(self, version, kind):
        (path,) = self.folder.glob(f"*.{version}.0-of-1.{kind}")
        return path


@pytest.fixture
def run(tmp_path, monkeypatch):
    return Run(tmp_path / "weights", monkeypatch, whole_every=3)


def test_subscribers_have_the_published_bits(run):
    first = run.publish()
    assert first.whole and first.version == 1 and first.whole_bytes < first.bytes < first.whole_bytes + 1000
    follower, following = zeropp.Subscriber(run.folder), run.empty()
    assert follower.version is None and follower.update(following) == 1
    run.assert_version(following, 1)
    assert follower.update(following) == 1, "nothing new"
    one = run.publish()
    assert not one.whole and one.bytes < 0.6 * one.whole_bytes and one.seconds > 0
    assert follower.update(following, version=2) == 2
    run.assert_version(following, 2)
    for _ in range(6):
        run.publish()
    # Behind the whole versions 4 and 7, and so with gone differences.
    assert len(list(run.folder.iterdir())) == 1 + 2 + 5
    late, latest = zeropp.Subscriber(run.folder), {name: t.float() for name, t in run.empty().items() if name != "tied"}
    for subscriber, weights in ((follower, following), (late, latest)):
        assert subscriber.update(weights) == subscriber.version == 8
    run.assert_version(following, 8)
    for name, tensor in latest.items():
        torch.testing.assert_close(tensor, run.versions[8][name].float(), rtol=0, atol=0, equal_nan=True)
    assert follower.digest == late.digest
    run.publish()
    assert follower.update(following) == 9 and follower.digest != late.digest
    # Differences alone: the bits of tensors that changed behind their back stay so.
    run.publish()
    following["half"][0] = 3
    assert follower.update(following) == 10 and following["half"][0] != run.versions[10]["half"][0]
    others = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in following.items() if name != "tied"}
    assert follower.update(others) == 10
    run.assert_version({**others, "tied": others["master"]}, 10)
    published = {name: run.versions[10][name].contiguous() for name in others}
    assert zeropp.weights_digest(others) == zeropp.weights_digest(published)
    others["one"].mul_(-1)
    assert zeropp.weights_digest(others) != zeropp.weights_digest(published)


def test_weights_in_freed_memory_are_other_weights(tmp_path):
    weights, memory = {"a": torch.randn(5000)}, bytearray(4 * 5000)
    zeropp.Publisher(weights, tmp_path).publish()
    subscriber = zeropp.Subscriber(tmp_path)
    for _ in range(2):
        given = {"a": torch.frombuffer(memory, dtype=FP32).zero_()}
        assert subscriber.update(given) == 1 and torch.equal(given["a"], weights["a"].to(BF16).float())
        del given


def test_copies_are_in_host_memory_and_a_failed_copy_is_made_again(tmp_path):
    weights = {"a": torch.randn(5000)}
    given, once = {"a": torch.zeros(5000)}, {"a": torch.zeros(1).expand(5000)}  # Torch refuses to write to the latter.
    subscriber = zeropp.Subscriber(tmp_path)
    with torch.device("meta"):  # As torch.set_default_device("cuda").
        zeropp.Publisher(weights, tmp_path).publish()
        assert subscriber.update(given) == 1
    assert torch.equal(given["a"], weights["a"].to(BF16).float())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="single memory location"):
            subscriber.update(once)
        assert subscriber.version is None


def test_tied_weights_are_published_once(tmp_path):
    # Tensors of a state dict are others for each name.
    model, copy = (network(tied=True).to(BF16) for _ in range(2))
    publisher, subscriber = zeropp.Publisher(model.state_dict(), tmp_path), zeropp.Subscriber(tmp_path)
    for version in (1, 2):
        assert publisher.publish().whole_bytes == sum(2 * p.numel() for p in model.parameters())
        assert subscriber.update(copy.state_dict()) == version
        assert torch.equal(bits(copy.head.weight), bits(model.head.weight))
        with torch.no_grad():
            model.head.weight[:5] *= 1.01
    assert zeropp.weights_digest(copy) == zeropp.weights_digest(copy.state_dict())
    zeropp.Publisher(network().to(BF16), tmp_path).publish()
    with pytest.raises(zeropp.ZeroppError, match="expected head.weight with memory of its own, as published, given that of embed.weight"):
        subscriber.update(copy, version=3)


def damages(path):
    """Other bytes for a file, by name."""
    whole = path.read_bytes()
    middle, end = bytearray(whole), bytearray(whole)
    middle[len(whole) // 2] ^= 4
    end[-1] ^= 1
    cut = whole[: len(whole) * 2 // 3]
    return {"cut": cut, "empty": b"", "longer": whole + b"\0", "flipped": middle, "hash": end, "header": b"{" + whole}


def test_a_damaged_file_is_an_error_that_names_it(run):
    run.publish()
    behind, old = zeropp.Subscriber(run.folder), run.empty()
    assert behind.update(old) == 1
    for _ in range(4):
        run.publish()
    path = run.file(5, "differences")
    good = path.read_bytes()
    for name, damaged in {**damages(path), "foreign": run.file(2, "differences").read_bytes()}.items():
        subscriber, weights = zeropp.Subscriber(run.folder), run.empty()
        path.write_bytes(damaged)
        for _ in range(2):
            with pytest.raises(zeropp.ZeroppError, match=f"expected {path} .*; the weights have version 4$"):
                subscriber.update(weights)
            assert subscriber.version == 4, name
            run.assert_version(weights, 4)
        path.write_bytes(good)
        assert subscriber.update(weights) == 5
        run.assert_version(weights, 5)
    path = run.file(4, "whole")
    good = path.read_bytes()
    for name, damaged in {**damages(path), "foreign": run.file(1, "whole").read_bytes()[:-1]}.items():
        subscriber, weights = zeropp.Subscriber(run.folder), run.empty()
        path.write_bytes(damaged)
        with pytest.raises(zeropp.ZeroppError, match=f"expected {path} .*; the weights are lost$"):
            subscriber.update(weights)
        assert subscriber.version is None, name
        path.write_bytes(good)
        assert subscriber.update(weights) == 5
        run.assert_version(weights, 5)
    path.write_bytes(damages(path)["flipped"])
    run.file(2, "differences").unlink()
    with pytest.raises(zeropp.ZeroppError, match="; the weights are lost$"):
        behind.update(old)
    assert behind.version is None
    # Those who follow do not need whole weights, and a later whole version helps the others.
    run.publish(), run.publish()
    run.file(6, "differences").write_bytes(b"")
    with pytest.raises(zeropp.ZeroppError, match="the weights have version 5"):
        subscriber.update(weights)
    run.file(6, "differences").unlink()
    assert subscriber.update(weights) == 7
    run.assert_version(weights, 7)
    (run.folder / "run").write_text("no run")
    with pytest.raises(zeropp.ZeroppError, match="with the name of a run, given b'no run'"):
        subscriber.update(weights)


def test_a_restarted_training_is_a_new_run(run, monkeypatch):
    for _ in range(4):
        run.publish()
    subscriber, weights = zeropp.Subscriber(run.folder), run.empty()
    assert subscriber.update(weights) == 4
    (run.folder / (run.file(4, "whole").name + ".part")).write_bytes(b"of a killed rank")
    again = Run(run.folder, monkeypatch)
    assert [path.name for path in run.folder.iterdir()] == ["run"]
    assert subscriber.update(weights) == 4, "the new run has no version yet"
    run.publish()  # The old training still lives.
    assert again.publish().version == 5
    assert subscriber.update(weights) == 5
    again.assert_version(weights, 5)
    again.publish()
    assert subscriber.update(weights) == 6
    again.assert_version(weights, 6)
    # In an emptied directory, versions begin anew.
    shutil.rmtree(run.folder)
    anew = Run(run.folder, monkeypatch)
    assert [anew.publish().version for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    assert subscriber.update(weights) == 7
    anew.assert_version(weights, 7)


def test_a_failed_write_is_followed_by_a_whole_version(run, monkeypatch):
    run.publish()
    subscriber, weights = zeropp.Subscriber(run.folder), run.empty()
    assert subscriber.update(weights) == 1
    with monkeypatch.context() as full_disk:
        full_disk.setattr(os, "replace", lambda *_: exec("raise OSError('no space')"))
        with pytest.raises(OSError, match="no space"):
            run.publish()
    assert subscriber.update(weights) == 1
    assert run.publish().whole and subscriber.update(weights) == 3
    run.assert_version(weights, 3)
    run.publish()
    assert subscriber.update(weights) == 4
    run.assert_version(weights, 4)


def follow(folder, weights):
    subscriber = zeropp.Subscriber(folder)
    while True:
        subscriber.update(weights)


def test_a_killed_subscriber_disturbs_nobody(run):
    run.publish()
    child = multiprocessing.get_context("fork").Process(target=follow, args=(run.folder, run.empty()), daemon=True)
    child.start()
    for _ in range(10):
        run.publish()
    time.sleep(0.1)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert child.exitcode == -signal.SIGKILL
    names = sorted(path.name.split(".", 2)[-1] for path in run.folder.iterdir())
    assert run.publish().version == 12 and len(names) == 1 + 2 + 5, names
    weights = run.empty()
    assert zeropp.Subscriber(run.folder).update(weights) == 12
    run.assert_version(weights, 12)


def test_other_weights_are_refused_before_any_is_written(run, tmp_path):
    subscriber = zeropp.Subscriber(run.folder)
    run.publish()
    given = run.empty()
    longer, other = {**given, "half": torch.ones(7002).half()}, {**given, "half": torch.ones(7001).to(BF16)}
    wrong = {
        "given some without half": {name: tensor for name, tensor in given.items() if name != "half"},
        "given some with further ones, as bias and 1 others": {**given, "bias": torch.ones(2), "more": torch.ones(2)},
        "expected half of shape [7001] and torch.float16, given [7002] and torch.float16": longer,
        "expected half of shape [7001] and torch.float16, given [7001] and torch.bfloat16": other,
        "expected weights as a module, or tensors by name, given None": None,
        "expected half as a tensor, given 3": {**given, "half": 3},
        "given one as another": {"one": torch.ones((), device="meta")},
    }
    assert refusals({words: lambda weights=weights: subscriber.update(weights) for words, weights in wrong.items()}) == []
    assert all((tensor == 7).all() for tensor in given.values())
    begin = time.monotonic()
    calls = {
        f"Subscriber: expected version 2 in {run.folder} within 0.1 s, given 1":
            lambda: subscriber.update(given, version=2, timeout=0.1),
        f"Subscriber: expected a version in {tmp_path} within 0 s, given none":
            lambda: zeropp.Subscriber(tmp_path).update(given, timeout=0),
        "Subscriber: expected timeout in seconds, given nan":
            lambda: zeropp.Subscriber(tmp_path).update(given, timeout=float("nan")),
        "Publisher: expected whole_every as a whole number from 1, given 0":
            lambda: zeropp.Publisher(given, tmp_path, whole_every=0),
        "Publisher: expected dtype as torch.bfloat16 or torch.float16, given torch.float32":
            lambda: zeropp.Publisher(given, tmp_path, dtype=FP32),
        "Publisher: expected tensors of torch.float32, torch.float16, torch.bfloat16, given count of torch.int64":
            lambda: zeropp.Publisher({"count": torch.ones(3).long()}, tmp_path),
    }
    assert refusals(calls) == [] and time.monotonic() - begin < 5
    run.assert_version(given, 1)
    half, run.weights["half"] = run.weights["half"], torch.ones(3).half()
    with pytest.raises(zeropp.ZeroppError, match="expected tensors with the names, types and shapes of the first version"):
        run.publish()
    # The refused version has a number, because other ranks may have published theirs.
    run.weights["half"] = half
    assert run.publish().whole and subscriber.update(given) == 3
    run.assert_version(given, 3)


def publishes(rank, size, folder, mesh_shape):
    names = ("replicate", "shard")[-len(mesh_shape):]
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
    model = shard(network(tied=True), mesh=mesh)
    publisher = zeropp.Publisher(model, folder, whole_every=2)
    subscriber, copy = zeropp.Subscriber(folder), network(tied=True).to(BF16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(3):
        loss_of(model, batch(step, rank)).backward()
        optimizer.step()
        optimizer.zero_grad()
        loss_of(model, batch(step, rank))  # An evaluation leaves the root's weights whole.
        published = publisher.publish()
        writes = len(mesh_shape) == 1 or rank < 2
        assert published.version == step + 1 and published.whole == (writes and step % 2 == 0)
        assert (published.bytes > 0) == (published.whole_bytes > 0) == writes
        expected = {name: p.to(BF16) for name, p in whole_parameters(model).items()}
        assert subscriber.update(copy, version=step + 1, timeout=20) == step + 1
        given = dict(copy.named_parameters())
        assert given.keys() == expected.keys()
        for name in given:
            assert torch.equal(bits(given[name]), bits(expected[name])), name
        assert zeropp.weights_digest(copy) == zeropp.weights_digest(expected)
    return len({path.name.split(".")[2] for path in folder.iterdir() if path.name != "run"})


def test_every_rank_publishes_its_own_shard(ranks, tmp_path):
    # Rows that three ranks divide unevenly; replicas, of which one publishes.
    assert ranks.run(3, publishes, tmp_path / "fsdp", (3,)) == 3 * [3]
    assert ranks.run(4, publishes, tmp_path / "hsdp", (2, 2)) == 4 * [2]


def refused(rank, size, folder):
    mesh = init_device_mesh("cpu", (size,))
    weights = {"a": torch.ones(4)}
    columns = DTensor.from_local(torch.ones(3, 2), mesh, [Shard(1)])
    twice = DTensor.from_local(torch.ones(6), mesh, [Shard(0)], shape=(6,), stride=(1,), run_check=False)
    others = {"a": torch.ones(4 + rank)}
    return refusals({
        "Publisher: expected whole_every as a whole number from 1, given 0":
            lambda: zeropp.Publisher(weights, folder, whole_every=rank - 1 if rank else 2),
        "Publisher: expected directory as a path, given None": lambda: zeropp.Publisher(weights, None if rank else folder),
        # Of any kind, on one rank alone.
        "NotImplementedError('Cannot access storage of SparseTensorImpl')":
            lambda: zeropp.Publisher({"a": torch.ones(4).to_sparse() if rank else torch.ones(4)}, folder),
        "Publisher: expected equal whole_every on all ranks, given others on rank 1":
            lambda: zeropp.Publisher(weights, folder, whole_every=rank + 2),
        "Publisher: expected equal names, types and shapes on all ranks, given others on rank 1":
            lambda: zeropp.Publisher(others, folder),
        "Publisher: expected a sharded once, in dimension 0, given (Shard(dim=1),)":
            lambda: zeropp.Publisher({"a": columns}, folder),
        "Publisher: expected a group that has all 6 elements once, given one with 12":
            lambda: zeropp.Publisher({"a": twice}, folder),
    })


def test_ranks_refuse_together(ranks, tmp_path):
    assert ranks.run(2, refused, tmp_path) == 2 * [[]]


def test_the_example_ends_with_equal_bits():
    pytest.importorskip("transformers", reason="tests/torch/run.sh --launchers installs it")
    command = [sys.executable, EXAMPLE, "--steps", "2", "--pretraining", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    compared = re.findall(r"^rollout ([01]) has had the trainer's bits in ([0-9]) of \2 versions", done.stdout, re.MULTILINE)
    assert [number for number, versions in compared if int(versions) > 0] == ["0", "1"], done.stdout
    assert len(re.findall(r"^version [1-3]: ", done.stdout, re.MULTILINE)) == 3, done.stdout
