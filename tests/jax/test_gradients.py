"""Gradients through zeropp's collectives beside those through JAX's own, and the order of calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zeropp_jax as zeropp
from test_collectives import DIVIDED, WHOLE, drawn, local, on_ranks

LOSSLESS = zeropp.Formats.lossless()


def layer(full, x):
    return jnp.tanh(x * full[: x.size] + full[-x.size :])


def plain_unit(function):
    return lambda shard, token, *inputs: (function(jax.lax.all_gather(shard, "ranks", tiled=True), *inputs), token)


def gathered(comm, function):
    """As zeropp.unit, by a gather whose result backward keeps."""

    def called(shard, token, *inputs):
        full, token = zeropp.all_gather(comm, shard, token, LOSSLESS)
        return function(full, *inputs), token

    return called


def gradients(comm, make_unit, shards, layers):
    """Loss and gradients of layers that share the weights, in a loop that carries the token."""
    unit = make_unit(layer)

    def loss(shard, token):
        x = jnp.linspace(-1, 1, 77) * (1 + jax.lax.axis_index("ranks"))
        (x, token), _ = jax.lax.scan(lambda carry, _: (unit(shard, carry[1], carry[0]), None), (x, token), length=layers)
        return jnp.sum(x**2), token

    def step(shard, token):
        (value, after), (gradient, last) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(shard, token)
        return jnp.atleast_1d(value), gradient, jnp.where(last == 0, after, last)

    return on_ranks(comm, step, (DIVIDED, DIVIDED, WHOLE))(shards, comm.token())


@pytest.mark.parametrize("way", ["gathered", "unit", "replica"])
def test_gradients_equal_those_of_jax(comm, way):
    shards = drawn(comm, (101,), jnp.float32)
    # A node's copy has one version: layers that share weights would update it in between.
    layers = 1 if way == "replica" else 3
    value, gradient, _ = gradients(comm, plain_unit, shards, layers)
    replica = zeropp.Replica(comm, (101,)) if way == "replica" else None
    made = {
        "gathered": lambda function: gathered(comm, function),
        "unit": lambda function: zeropp.unit(comm, function, LOSSLESS),
        "replica": lambda function: zeropp.unit(comm, function, LOSSLESS, replica),
    }[way]
    before = comm.token()
    ours, of_ours, token = gradients(comm, made, shards, layers)
    np.testing.assert_allclose(local(ours), local(value), rtol=1e-6)
    np.testing.assert_allclose(local(of_ours), local(gradient), rtol=1e-5, atol=1e-6)
    calls = {"gathered": 2, "unit": 3, "replica": 3}[way] * layers
    assert float(token) == float(before) + calls == float(comm.token())


def test_reduce_scatter_has_the_gather_as_its_gradient(comm):
    def both(x, token):
        weight = jnp.arange(x.size, dtype=jnp.float32) * (1 + jax.lax.axis_index("ranks"))

        def ours(x):
            shard, _ = zeropp.reduce_scatter(comm, jnp.tile(x, comm.size), token, LOSSLESS)
            return jnp.sum(shard * weight)

        def of_jax(x):
            return jnp.sum(jax.lax.psum_scatter(jnp.tile(x, comm.size), "ranks", tiled=True) * weight)

        return jax.grad(ours)(x), jax.grad(of_jax)(x)

    ours, of_jax = on_ranks(comm, both, DIVIDED)(drawn(comm, (55,), jnp.float32), comm.token())
    np.testing.assert_allclose(local(ours), local(of_jax), rtol=1e-6)


def fails(comm, function, words, shape=(100,)):
    """Requires an error with `words` on this rank, after which calls go on."""
    part = drawn(comm, shape, jnp.float32)
    with pytest.raises(Exception, match=words):
        jax.block_until_ready(on_ranks(comm, function, WHOLE)(part, comm.token()))
    full, _ = on_ranks(comm, lambda x, token: zeropp.all_gather(comm, x, token, LOSSLESS), WHOLE)(part, comm.token())
    assert full.shape == (comm.size * shape[0],)


def test_a_token_that_two_calls_take_is_an_error(comm):
    def twice(x, token):
        first, _ = zeropp.all_reduce(comm, x, token, LOSSLESS)
        second, token = zeropp.all_reduce(comm, 2 * x, token, LOSSLESS)
        return first + second, token

    fails(comm, twice, "expected token .* each call takes the token that the call before it has returned")


def test_calls_that_differ_between_ranks_are_an_error(comm):
    formats = LOSSLESS if jax.process_index() == 0 else zeropp.Formats()
    fails(comm, lambda x, token: zeropp.all_gather(comm, x, token, formats), "expected the same call on every rank")


def test_wrong_arguments_are_errors_with_both_sides(comm):
    other = zeropp.Formats("int9", "int9", "int9")
    fails(comm, lambda x, token: zeropp.all_gather(comm, x, token, other), 'given "int9"')
    fails(comm, lambda x, token: zeropp.all_reduce(comm, x.astype(jnp.int32), token), "expected an array of float32, float16")
    fails(comm, lambda x, token: zeropp.reduce_scatter(comm, x, token), r"multiple of 4, given the shape \(99,\)", (99,))
    third = zeropp.Formats(inter_site="int4:128:signed:bf16")
    fails(comm, lambda x, token: zeropp.all_reduce(comm, x, token, third), "expected nodes_per_site with a format between sites")
    fails(comm, lambda x, token: zeropp.Replica(comm, (7,)).update_gather(x, token)[::2], "expected shards of")
    by_all_reduce = jax.grad(lambda x, token: zeropp.all_reduce(comm, x, token)[0].sum())
    fails(comm, lambda x, token: (by_all_reduce(x, token), token), "cannot be differentiated")
    with pytest.raises(zeropp.ZeroppError, match="expected a call inside jax.shard_map over the axis ranks"):
        zeropp.all_gather(comm, jnp.ones(4), comm.token())
    with pytest.raises(zeropp.ZeroppError, match="expected nodes of a divisor of 4 ranks, given 3"):
        zeropp.Communicator(3)


def test_jax_collectives_may_run_between_zeropps(comm):
    def mixed(x, token):
        exact, total = jax.lax.pmean(x, "ranks"), jnp.float32(0)
        for _ in range(6):
            x, token = zeropp.all_reduce(comm, x, token, LOSSLESS, mean=True)
            total += jax.lax.pmean(jnp.sum(x), "ranks") + jax.lax.psum(jnp.max(x), "ranks")
        return x, exact, total

    for _ in range(3):
        x, exact, total = on_ranks(comm, mixed, WHOLE)(drawn(comm, (500,), jnp.float32), comm.token())
        np.testing.assert_allclose(local(x), local(exact), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(float(total), 6 * (local(exact).sum() + comm.size * local(exact).max()), rtol=1e-4, atol=1e-2)
