"""Nodes in sites, on 2 sites of 2 nodes of 2 ranks, against torch.distributed and sums of messages by hand."""

import ctypes
from unittest import mock

import torch
import zeropp_torch as zeropp
from models import (
    as_torch_sums, assert_same, batch, drawn, loss_of, network, refusals, shard, slice_of, the_same_on_all_ranks, through, train,
    whole_parameters,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from zeropp_torch.communicator import Places, volume

INT8, INT4 = "int8:256:bf16", "int4:128:signed:bf16"
ROTATED = ("int8:256:bf16:h32", "int4:128:signed:bf16:h32", "int2:64:signed:bf16:h32")
SIZES = [3, 20003]
# Nodes of each rank, nodes of a site, and the ranks by site and node: the usual, sites in turns, and one level without members.
LAYOUTS = [
    ([0, 0, 1, 1, 2, 2, 3, 3], 2, [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]),
    ([2, 2, 0, 0, 3, 3, 1, 1], 2, [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]),
    ([0, 1, 2, 3, 4, 5, 6, 7], 4, [[[0], [1], [2], [3]], [[4], [5], [6], [7]]]),
    ([0, 0, 1, 1, 2, 2, 3, 3], 1, [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]]),
    ([0, 0, 1, 1, 2, 2, 3, 3], 4, [[[0, 1], [2, 3], [4, 5], [6, 7]]]),
]


def summed(parts, sites, formats):
    """The sum of `parts`, by rank: of a node's ranks, then of a site's nodes, then of sites, sent in the formats of levels."""
    levels = [len(sites[0][0]) > 1, len(sites[0]) > 1, len(sites) > 1]

    def add(terms, level):
        if not levels[level]:
            return terms[0]
        terms = [through(term, formats[level]) for term in terms]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    return add([add([add([parts[rank] for rank in node], 0) for node in site], 1) for site in sites], 2)


def bytes_of(format, n):
    return zeropp.quantize(torch.zeros(n), format).numel()


def moved(communicator, call):
    """What `call` sends."""
    before = communicator.traffic()
    call()
    return communicator.traffic() - before


def check_layout(rank, size, nodes, nodes_per_site, sites):
    communicator = zeropp.Communicator(nodes=nodes, nodes_per_site=nodes_per_site, compared_calls=9)
    places = Places(nodes, nodes_per_site)
    of_node, of_site, count = len(sites[0][0]), len(sites[0]), len(sites)

    def check(sent, function, formats, by_hand, elements, two_shot=False):
        planned = volume(function, formats, elements, places, rank, two_shot)
        assert sent == planned, (function, formats, sent, planned)
        assert (sent.intra_node, sent.inter_node, sent.inter_site) == by_hand, (function, formats, sent, by_hand)

    for n in SIZES:
        whole, part = drawn(n, n), slice_of(drawn(n, n), rank, size)
        full = torch.full((n,), float("nan"))
        one = bytes_of(INT8, -(-n // size))
        sent = moved(communicator, lambda: zeropp.all_gather(communicator, part, full, INT8))
        assert torch.equal(full, torch.cat([through(slice_of(whole, r, size), INT8) for r in range(size)]))
        gathered = ((of_node - 1) * of_site * count * one, (of_site - 1) * count * one, (count - 1) * one)
        check(sent, "zeropp_all_gather", [INT8], gathered, n)

        parts = [slice_of(drawn(n, r), rank, size) for r in range(size)]
        for given in (("fp32",), (INT8, INT4), (INT8, INT8, INT4)):
            formats = [*given, *(3 - len(given)) * [given[-1]]]
            total = torch.empty_like(part)
            sent = moved(communicator, lambda: zeropp.reduce_scatter(communicator, drawn(n, rank), total, *given))
            assert torch.equal(total, summed(parts, sites, formats)), (n, given)
            one, two, three = (bytes_of(name, -(-n // size)) for name in formats)
            scattered = ((of_node - 1) * of_site * count * one, (of_site - 1) * count * two, (count - 1) * three)
            check(sent, "zeropp_reduce_scatter", [formats[0], given[-1]] if len(given) < 3 else given, scattered, n)

        # zeropp_quantize has no rotated formats. Two bits lose half of a Gaussian's deviation, four a tenth.
        sent = moved(communicator, lambda: zeropp.reduce_scatter(communicator, drawn(n, rank), total, *ROTATED))
        assert sent == volume("zeropp_reduce_scatter", ROTATED, n, places, rank)
        if n == SIZES[-1]:
            assert float((total - sum(parts)).norm() / sum(parts).norm()) < (0.7 if count > 1 else 0.2)

        tensor = drawn(n, rank)
        sent = moved(communicator, lambda: zeropp.all_reduce(communicator, tensor, INT8, INT8, INT4, mean=True))
        assert the_same_on_all_ranks(tensor)
        assert sent == volume("zeropp_all_reduce", [INT8, INT8, INT4], n, places, rank)
        if n == SIZES[-1]:  # two-shot
            sums = [summed([slice_of(drawn(n, r), owner, size) for r in range(size)], sites, [INT8, INT8, INT4])
                    for owner in range(size)]
            assert torch.equal(tensor, torch.cat([through(total / size, INT4) for total in sums]))

        integers = torch.arange(n * size).view(size, n)
        exact, received = integers[rank].float(), torch.empty(n * size)
        zeropp.all_reduce(communicator, exact, "fp32")
        assert torch.equal(exact, integers.sum(0).float())
        sent = moved(communicator, lambda: zeropp.all_to_all(communicator, drawn(n * size, rank), received, "fp32"))
        assert torch.equal(received, torch.cat([drawn(n * size, r)[n * rank : n * (rank + 1)] for r in range(size)]))
        one = bytes_of("fp32", n)
        apart = tuple((k - 1) * (size // k) * one for k in (of_node, of_site, count))
        check(sent, "zeropp_all_to_all", ["fp32"], apart, n * size)
    return communicator


def check_kept(rank, size, in_sites):
    """Updates and error feedback; replicas have the bits that they have in one site."""
    n, results = SIZES[-1], []
    for communicator in (in_sites, zeropp.Communicator(ranks_per_node=2)):
        replica, gathered = zeropp.Replica(communicator, torch.empty(n)), []
        for step in range(3):
            part, full, again = slice_of(drawn(n, step), rank, size), torch.empty(n), torch.empty(n)
            update = moved(communicator, lambda: zeropp.update_gather(communicator, part, full, replica, ROTATED[2]))
            within = moved(communicator, lambda: zeropp.replica_gather(communicator, again, replica))
            assert torch.equal(full, again) and within.inter_node == within.inter_site == 0 < within.intra_node
            if step == 0:
                assert torch.equal(full, drawn(n, 0))
            else:
                places = communicator.places
                assert update == volume("zeropp_update_gather", [ROTATED[2], "fp32"], n, places, rank)
                assert within == volume("zeropp_replica_gather", ["fp32"], n, places, rank)
            gathered.append(full)
        results.append(gathered)
    assert all(torch.equal(ours, plain) for ours, plain in zip(*results))

    formats, steps, gradient = (INT8, INT8, INT4), 10, drawn(n, rank)
    exact = sum(drawn(n, r) for r in range(size))
    for of_all_reduce in (False, True):
        feedback = zeropp.ErrorFeedback(in_sites, gradient, *formats, of_all_reduce=of_all_reduce)
        errors = []
        for memory in (None, feedback):
            total = 0
            for _ in range(steps):
                if of_all_reduce:
                    result = gradient.clone()
                    zeropp.all_reduce(in_sites, result, *formats, feedback=memory)
                else:
                    result = slice_of(exact, rank, size)
                    zeropp.reduce_scatter(in_sites, gradient, result, *formats, feedback=memory)
                total = total + result
            expected = exact if of_all_reduce else slice_of(exact, rank, size)
            errors.append(float((total / steps - expected).norm()))
        assert 0 < errors[1] < errors[0] / 3, errors
        problem = "error feedback of int8:256:bf16 + int4:128:signed:bf16"
        call = zeropp.all_reduce if of_all_reduce else zeropp.reduce_scatter
        outputs = [] if of_all_reduce else [slice_of(exact, rank, size)]
        assert refusals({problem: lambda: call(in_sites, gradient, *outputs, INT8, INT4, feedback=feedback)}) == []


def wrong_sites(rank, size):
    def communicator(**arguments):
        return lambda: zeropp.Communicator(**arguments)

    model = network()
    shard(model)
    sites = {"ranks_per_node": 2, "nodes_per_site": 2}
    without = zeropp.Communicator(ranks_per_node=2)
    halves = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    return refusals({
        "zeropp_c: expected as many nodes in each site, given sites of 3, 1 nodes": communicator(
            ranks_per_node=2, nodes_per_site=3
        ),
        "zeropp_c: expected nodes of equal size in several sites, given 4 groups of 3, 1, 2, 2 ranks": communicator(
            nodes=[0, 0, 0, 1, 2, 2, 3, 3], nodes_per_site=2
        ),
        "in one order, given nodes [0, 1, 1, 0, 2, 2, 3, 3]": communicator(nodes=[0, 1, 1, 0, 2, 2, 3, 3], nodes_per_site=2),
        "in one order, given nodes [0, 1, 2, 2, 3, 0, 1, 3]": communicator(nodes=[0, 1, 2, 2, 3, 0, 1, 3], nodes_per_site=2),
        "Communicator: expected nodes_per_site as a whole number from 1, given 0": communicator(
            ranks_per_node=2, nodes_per_site=0
        ),
        "Communicator: expected the same on every rank, given nodes_per_site 1 on rank 0": communicator(
            ranks_per_node=2, nodes_per_site=1 if rank == 0 else 2
        ),
        "given \"int8:256:bf16 + fp32 + fp32\"": lambda: zeropp.reduce_scatter(
            zeropp.Communicator(**sites), torch.zeros(8), torch.zeros(1), INT8, "fp32", "fp32"
        ),
        "formats as names, given 4": lambda: zeropp.all_reduce(zeropp.Communicator(**sites), torch.zeros(8), INT8, INT8, 4),
        "zeropp_torch: expected nodes_per_site with a format between sites, given int8:256:bf16 + int8": lambda: zeropp.reduce_scatter(
            without, torch.zeros(8), torch.zeros(1), INT8, INT8, INT4
        ),
        "zeropp_torch: expected nodes_per_site with a format between sites, given int8": lambda: zeropp.all_reduce(
            without, torch.zeros(8), INT8, INT8, INT4
        ),
        "zeropp_torch: expected nodes_per_site with a format between sites": lambda: zeropp.ErrorFeedback(
            without, torch.zeros(8), INT8, INT8, INT4
        ),
        "apply: expected nodes_per_site as a whole number from 1, given 'a'": lambda: zeropp.apply(
            model, ranks_per_node=2, nodes_per_site="a"
        ),
        "apply: expected as many nodes in each site": lambda: zeropp.apply(model, ranks_per_node=2, nodes_per_site=3),
        "with ranks_per_node 2 and nodes_per_site 3": lambda: zeropp.apply(
            shard(network(), mesh=halves), ranks_per_node=2, nodes_per_site=3
        ),
        "with ranks_per_node 1 and nodes_per_site 3": lambda: zeropp.apply(
            shard(network(), secondary=4), ranks_per_node=1, nodes_per_site=3
        ),
        "apply: expected nodes_per_site with a format between sites, given int8": lambda: zeropp.apply(
            model, ranks_per_node=2, gradients=(INT8, INT8, INT4)
        ),
        "ddp_hook: expected nodes_per_site with a format between sites": lambda: zeropp.ddp_hook(
            ranks_per_node=2, gradients=(INT8, INT8, INT4)
        ),
        "gradients: expected one of lossless": lambda: zeropp.apply(model, **sites, gradients=(INT8, INT4, INT8)),
        "ddp_hook: expected the same on every rank, given nodes_per_site": lambda: zeropp.ddp_hook(
            ranks_per_node=2, nodes_per_site=rank % 2 + 1
        ),
    })


def differing_sites(rank, size):
    """Ranks that differ in nodes_per_site alone, where nodes in one site have the places of sites of one node."""
    nodes = (ctypes.c_int * size)(*range(size))
    with mock.patch.object(Places, "for_library", lambda places: (nodes, rank % 2, size)):
        apart = zeropp.Communicator(nodes=list(nodes))
    shards, fulls = torch.zeros(1), torch.zeros(size)
    replica = zeropp.Replica(apart, fulls)
    given = "expected the same call on every rank, given"
    return refusals({
        f"{given} quantized_all_gather of 8 elements": lambda: zeropp.all_gather(apart, shards, fulls, "fp32"),
        f"{given} zeropp_update_gather of 8 elements": lambda: zeropp.update_gather(apart, shards, fulls, replica, ROTATED[1]),
    })


def collectives(rank, size):
    communicators = [check_layout(rank, size, *layout) for layout in LAYOUTS]
    check_kept(rank, size, communicators[0])
    return differing_sites(rank, size) + wrong_sites(rank, size)


def test_collectives_take_a_hop_between_sites(ranks):
    assert ranks.run(8, collectives) == 8 * [[]]


def small():
    return network(blocks=1)


def models(rank, size):
    sites = {"ranks_per_node": 2, "nodes_per_site": 2}
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    # Replicas are sites; or replicas of a shard are on two nodes of each site.
    turned = init_device_mesh("cpu", (4, 2), mesh_dim_names=("replicate", "shard"))
    plain = as_torch_sums(shard(small()))
    train(plain, rank, steps=2)
    # hpZ's groups are nodes, or sites.
    for arguments in ({}, {"secondary": 2}, {"secondary": 4}, {"mesh": mesh}, {"mesh": turned}):
        model = shard(small(), **arguments)
        report = zeropp.apply(model, **sites, preset="lossless", replicas="lossless" if "mesh" in arguments else None)
        train(model, rank, steps=2)
        assert_same(whole_parameters(plain), whole_parameters(model), rtol=1e-4, atol=1e-5)
        sent = zeropp.stats(model)
        assert sent.inter_site == 2 * report.after.inter_site > 0, arguments
        assert "inter-site bytes, before" in str(report)

    # Fewer bits between sites, and weights that nodes keep: they cross once.
    reports = {}
    for name, formats in {
        "16bit": {"preset": "16bit"}, "4bit": {"weights": "bf16", "gradients": (INT8, INT8, INT4)}, "2bit": {"preset": "2bit"},
    }.items():
        model = shard(small())
        reports[name] = zeropp.apply(model, **sites, **formats)
        train(model, rank, steps=1)
        # The first update sends whole weights.
        if name != "2bit":
            assert zeropp.stats(model) == reports[name].after
    assert reports["16bit"].rows[0].gradients == "bf16 + bf16"
    assert reports["4bit"].rows[0].gradients == " + ".join((INT8, INT8, INT4))
    assert reports["2bit"].after.inter_site < reports["4bit"].after.inter_site < reports["16bit"].after.inter_site
    one_site = zeropp.apply(shard(small()), ranks_per_node=2, nodes_per_site=4, preset="16bit")
    plain = zeropp.apply(shard(small()), ranks_per_node=2, preset="16bit")
    assert str(one_site) == str(plain) and one_site.rows == plain.rows and "inter-site" not in str(plain)
    assert plain.after.inter_node == reports["16bit"].after.inter_node + reports["16bit"].after.inter_site

    # DDP's gradients are means over all ranks.
    exact = [p.grad for p in _ddp(None, rank).parameters()]
    hook = zeropp.ddp_hook(**sites, gradients=(INT8, INT8, INT4))
    for ours, mean in zip(_ddp(hook, rank).parameters(), exact, strict=True):
        assert 0 < float((ours.grad - mean).norm()) < 0.3 * float(mean.norm()) + 1e-6
    hook = zeropp.ddp_hook(**sites, gradients="lossless")
    for ours, mean in zip(_ddp(hook, rank).parameters(), exact, strict=True):
        torch.testing.assert_close(ours.grad, mean, rtol=1e-5, atol=1e-6)
    assert hook.traffic().inter_site > 0

    # The planner counts what the report does, but for FSDP's padding and the root's second gather.
    model = shard(small())
    report = zeropp.apply(model, **sites, preset="16bit")
    found = zeropp.estimate(model, world_size=size, **sites, preset="16bit", secondary=1)
    (root,) = (row for row in report.rows if row.unit == "(root)")
    assert abs(found.inter_site_gb * 1e9 / (4 * (report.after.inter_site + root.elements * 2 / size)) - 1) < 0.1
    assert found.compressed_gb > found.inter_site_gb / 2 and "in 2 sites" in found.report
    slow, fast = (zeropp.Machine(inter_site_gbit=rate) for rate in (1, 100))
    assert _step(slow) > _step(fast)


def _step(machine):
    return zeropp.estimate(10**9, world_size=64, ranks_per_node=8, nodes_per_site=4, machine=machine).step_ms


def _ddp(hook, rank):
    model = DistributedDataParallel(small())
    if hook is not None:
        model.register_comm_hook(None, hook)
    loss_of(model, batch(0, rank)).backward()
    return model


def test_models_train_over_sites(ranks):
    ranks.run(8, models)


def test_estimates_over_sites_are_refused_in_words():
    def ask(**asked):
        return lambda: zeropp.estimate(**{"model": 1000, "world_size": 16, "ranks_per_node": 2, "nodes_per_site": 4, **asked})

    assert refusals({
        "estimate: expected nodes_per_site as a whole number from 1, given 0": ask(nodes_per_site=0),
        "zeropp_c: expected nodes per site that divide the 8 nodes, given 3": ask(nodes_per_site=3),
        "inter_site_gbit as a number above 0, given 0": lambda: zeropp.Machine(inter_site_gbit=0),
        "inter_site_us as a number from 0, given -1": lambda: zeropp.Machine(inter_site_us=-1),
        "secondary group size: expected a divisor of the 16 ranks": ask(nodes_per_site=1, secondary=3),
        "estimate: expected nodes_per_site with a format between sites": ask(nodes_per_site=None, gradients=(INT8, INT8, INT4)),
    }) == []
