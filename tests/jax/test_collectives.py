"""zeropp's collectives beside JAX's own, on 2 nodes x 2 ranks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zeropp_jax as zeropp
from jax.sharding import NamedSharding, PartitionSpec

SHAPES = [(1,), (1001,), (33, 5)]
TYPES = [jnp.float32, jnp.bfloat16]
DIVIDED, WHOLE = PartitionSpec("ranks"), PartitionSpec()


def on_ranks(comm, function, results):
    """`function` of a rank's parts of arrays, and of a token, compiled. `results` says which ones are parts, and which whole."""
    return jax.jit(jax.shard_map(function, mesh=comm.mesh(), in_specs=(DIVIDED, WHOLE), out_specs=results, check_vma=False))


def drawn(comm, shape, dtype, seed=0):
    """An array that each rank has a part of, of this shape, with elements of different sizes."""
    random = np.random.default_rng(seed)
    all_parts = (random.standard_t(3, (comm.size * shape[0], *shape[1:]))).astype(dtype)
    return jax.make_array_from_callback(all_parts.shape, NamedSharding(comm.mesh(), DIVIDED), lambda at: all_parts[at])


def lossless(dtype):
    name = {jnp.float32: "fp32", jnp.bfloat16: "bf16"}[dtype]
    return zeropp.Formats(name, name, name)


def local(array):
    """This rank's data, as float64."""
    return np.asarray(array.addressable_shards[0].data).astype(np.float64)


def rounding(dtype):
    """The relative error of one rounding to `dtype`."""
    return float(jnp.finfo(dtype).eps) / 2


@pytest.mark.parametrize("dtype", TYPES)
def test_lossless_collectives_equal_those_of_jax(comm, dtype):
    formats = lossless(dtype)

    def both(parts, token):
        results = []
        for part in parts:
            own = jax.lax.all_gather(part, "ranks", tiled=True)
            mine = own * (1 + jax.lax.axis_index("ranks")).astype(dtype)
            full, token = zeropp.all_gather(comm, part, token, formats)
            shard, token = zeropp.reduce_scatter(comm, mine, token, formats)
            total, token = zeropp.all_reduce(comm, part, token, formats)
            mean, token = zeropp.all_reduce(comm, part, token, formats, mean=True)
            sums = jax.lax.psum_scatter(mine.astype(jnp.float32), "ranks", tiled=True)
            whole = jax.lax.psum(part.astype(jnp.float32), "ranks")
            results.append({"same": (full, own, total, whole, mean), "divided": (shard, sums)})
        return results, token

    # Each hop rounds to the messages' type, and a sum in another order differs in its last bits.
    near = functools.partial(np.testing.assert_allclose, rtol=4 * rounding(dtype), atol=40 * rounding(dtype))
    results, _ = on_ranks(comm, both, ([{"same": WHOLE, "divided": DIVIDED}] * len(SHAPES), WHOLE))(
        [drawn(comm, shape, dtype) for shape in SHAPES], comm.token()
    )
    for each in results:
        full, own, total, whole, mean = each["same"]
        shard, sums = each["divided"]
        assert full.dtype == shard.dtype == total.dtype == dtype
        assert (local(full) == local(own)).all()
        near(local(shard), local(sums))
        near(local(total), local(whole))
        near(local(mean), local(whole) / comm.size)


def block_maxima(shard, block):
    """For each element of a shard, the largest magnitude of its block, in the shard's shape."""
    flat = np.abs(shard).ravel()
    padded = np.pad(flat, (0, -flat.size % block)).reshape(-1, block).max(axis=1)
    return np.repeat(padded, block)[: flat.size].reshape(shard.shape)


# Largest errors, in parts of a block's largest element: half a step of 8 bits, and a step of 4 bits, whose highest code is
# 7/8 of the lowest. Scales in bfloat16 are at most 1/128 larger.
@pytest.mark.parametrize("format, block, part", [("int8:256:bf16", 256, 0.5 / 127), ("int4:128:signed:bf16", 128, 1 / 8)])
@pytest.mark.parametrize("dtype", TYPES)
def test_errors_are_within_the_formats_bounds(comm, dtype, format, block, part):
    formats = zeropp.Formats(format, format, format)

    def both(parts, token):
        results = []
        for x in parts:
            full, token = zeropp.all_gather(comm, x, token, formats)
            total, token = zeropp.all_reduce(comm, full, token, formats)
            shard, token = zeropp.reduce_scatter(comm, full, token, formats)
            exact = jax.lax.all_gather(x, "ranks", tiled=True)
            equal = jnp.all(jax.lax.all_gather(total, "ranks") == total[None])
            results.append({"same": (full, exact, total, equal), "divided": shard})
        return results, token

    results, _ = on_ranks(comm, both, ([{"same": WHOLE, "divided": DIVIDED}] * len(SHAPES), WHOLE))(
        [drawn(comm, shape, dtype) for shape in SHAPES], comm.token()
    )
    for each in results:
        full, exact, total = (local(array) for array in each["same"][:3])
        assert bool(each["same"][3]), "an all-reduce gives all ranks one result"
        bound = np.concatenate([block_maxima(shard, block) for shard in np.split(exact, comm.size)]) * part * (1 + 1 / 128)
        error = np.abs(full - exact)
        assert (error <= bound + rounding(dtype) * np.abs(exact)).all()
        if error.size > 1000:
            assert (error > 0.4 * bound).any(), "the format is as exact as another one"

        # Two or three quantizations, each of at most the sum of all ranks' magnitudes.
        sums = comm.size * full
        largest = comm.size * np.abs(full).max() * (1 + part)
        np.testing.assert_array_less(np.abs(total - sums), 3.5 * part * largest + 1e-30)
        own = np.split(sums, comm.size)[jax.process_index()]
        np.testing.assert_array_less(np.abs(local(each["divided"]) - own), 2.5 * part * largest + 1e-30)


@pytest.mark.parametrize("dtype", TYPES)
def test_replica_gathers_within_the_node(comm, dtype):
    shape = (333, 3)
    replica = zeropp.Replica(comm, shape, dtype)

    def update(part, token):
        full, version, token = replica.update_gather(part, token)
        return full, jax.lax.all_gather(part, "ranks", tiled=True), version, token

    updates = on_ranks(comm, update, WHOLE)
    part, token = drawn(comm, shape, dtype), comm.token()
    for step in range(3):
        full, exact, version, token = updates(part, token)
        token.block_until_ready()
        assert int(version) == step + 1
        # The first update is exact. The next are off by a step of 4 bits of a rotated difference, at most.
        error = np.abs(local(full) - local(exact)).max()
        assert error <= (0 if step == 0 else 0.05) and (step == 0 or error > 0)

        before = comm.traffic()
        again, token = on_ranks(comm, lambda _, token: replica.gather(jnp.int32(step + 1), token), WHOLE)(part, token)
        assert (local(again) == local(full)).all()
        sent = comm.traffic()
        assert sent.inter_node == before.inter_node and sent.intra_node > before.intra_node
        part = part + 0.01 * drawn(comm, shape, dtype, seed=step + 1)

    with pytest.raises(Exception, match="expected version 1 in the replica, given 3: it has been updated since"):
        jax.block_until_ready(on_ranks(comm, lambda _, token: replica.gather(jnp.int32(1), token), WHOLE)(part, token))


def test_collectives_take_a_hop_between_sites(comm):
    with pytest.raises(zeropp.ZeroppError, match="expected sites of a divisor of 4 nodes, given 3"):
        zeropp.Communicator(1, nodes_per_site=3)
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(zeropp.ZeroppError, match=f"expected seconds above 0, given {seconds}"):
            zeropp.Communicator(1, seconds=seconds)
    # Two sites of two nodes of one rank: 8 bits within a site, and 4 between sites.
    sites = zeropp.Communicator(1, nodes_per_site=2)
    formats = zeropp.Formats("int8:256:bf16", "int8:256:bf16", "int8:256:bf16", "int4:128:signed:bf16")

    def both(part, token):
        exact = jax.lax.all_gather(part, "ranks", tiled=True)
        total, token = zeropp.all_reduce(sites, exact, token, lossless(jnp.float32))
        full, token = zeropp.all_gather(sites, part, token, formats)
        shard, token = zeropp.reduce_scatter(sites, exact, token, formats)
        return {"same": (exact, total, full), "divided": shard}

    part = drawn(sites, (4096,), jnp.float32)
    before = sites.traffic()
    reduced = on_ranks(sites, lambda x, token: zeropp.reduce_scatter(sites, jnp.tile(x, 4), token, formats)[0], DIVIDED)
    jax.block_until_ready(reduced(part, sites.token()))
    sent = sites.traffic()
    # Two messages of a shard to the other node of the site, and one to the other site.
    assert sent.intra_node == before.intra_node == 0
    assert sent.inter_node - before.inter_node == 2 * (4096 + 2 * 16)
    assert sent.inter_site - before.inter_site == 4096 // 2 + 2 * 32
    results = on_ranks(sites, both, {"same": WHOLE, "divided": DIVIDED})(part, sites.token())
    exact, total, full = (local(array) for array in results["same"])
    np.testing.assert_allclose(total, 4 * exact, rtol=1e-6)
    assert (np.abs(full - exact) <= block_maxima(exact, 256) * 0.504 / 127).all()
    own = np.split(4 * exact, 4)[jax.process_index()]
    # A step of 4 bits of a block's largest element, and half a step of 8 bits.
    np.testing.assert_array_less(np.abs(local(results["divided"]) - own), 4 * np.abs(exact).max() * 0.14)


def test_messages_are_as_small_as_their_format(comm):
    part = drawn(comm, (4096,), jnp.float32)
    before = comm.traffic()
    jax.block_until_ready(on_ranks(comm, lambda x, token: zeropp.all_gather(comm, x, token), WHOLE)(part, comm.token()))
    sent = comm.traffic()
    # 4096 codes and 16 scales, to the other node once, and to the other rank of this node for both.
    assert sent.inter_node - before.inter_node == 4096 + 2 * 16
    assert sent.intra_node - before.intra_node == 2 * (4096 + 2 * 16)
