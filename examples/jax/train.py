"""Trains a small classifier as ZeRO-3 does, by JAX's own collectives and by zeropp's, and prints the losses side by side:

    mpirun -n 4 python train.py --ranks-per-node 2 --steps 40

Each rank keeps a part of each layer's weights and of the optimizer's state, and has a part of the batch.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import zeropp_jax as zeropp
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec

WIDTHS = (64, 255, 255, 10)  # odd: a layer's elements are no multiple of blocks or ranks


def first_layers():
    """Weights and bias of each layer."""
    random = np.random.default_rng(1)
    sizes = zip(WIDTHS[:-1], WIDTHS[1:])
    return [{"w": random.normal(0, n**-0.5, (n, m)).astype(np.float32), "b": np.zeros(m, np.float32)} for n, m in sizes]


def batch_of(step, rank, size):
    """A rank's part of a batch: points, and the class of the largest of ten random directions."""
    directions = np.random.default_rng(2).normal(size=(WIDTHS[0], WIDTHS[-1]))
    points = np.random.default_rng([3, step, rank]).normal(size=(size, WIDTHS[0]))
    return points.astype(np.float32), np.argmax(points @ directions, axis=1)


def jax_unit(comm, function):
    """As zeropp.unit, by JAX's own collectives. The token passes unchanged."""

    def called(shard, token, *inputs):
        return function(jax.lax.all_gather(shard, comm.axis, tiled=True), *inputs), token

    return called


def losses_of(comm, make_unit, steps, batch):
    """The mean loss of all ranks in each step, with units made by `make_unit(number, shard's shape, function)`."""
    mesh = comm.mesh()
    divided, whole = PartitionSpec(comm.axis), PartitionSpec()
    shards, units = [], []
    for number, layer in enumerate(first_layers()):
        flat, restore = ravel_pytree(layer)
        padded = np.pad(flat, (0, -len(flat) % comm.size))
        shards.append(jax.make_array_from_callback(padded.shape, NamedSharding(mesh, divided), lambda at, padded=padded: padded[at]))

        def apply(full, x, elements=len(flat), restore=restore, last=number == len(WIDTHS) - 2):
            layer = restore(full[:elements])
            y = x @ layer["w"] + layer["b"]
            return y if last else jax.nn.relu(y)

        units.append(make_unit(number, (len(padded) // comm.size,), apply))

    def loss_of(shards, token, x, labels):
        for unit, shard in zip(units, shards):
            x, token = unit(shard, token, x)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1)), token

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=(divided, divided, whole, divided, divided), out_specs=(divided, divided, whole, whole),
                   check_vma=False)
    def step(shards, momenta, token, x, labels):
        (loss, after), (gradients, last) = jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True)(shards, token, x, labels)
        # Backward's last call gives its token as the gradient of forward's first. JAX's own collectives give none.
        token = jnp.where(last == 0, after, last)
        momenta = [0.9 * momentum + gradient / comm.size for momentum, gradient in zip(momenta, gradients)]
        shards = [shard - 0.05 * momentum for shard, momentum in zip(shards, momenta)]
        return shards, momenta, token, jax.lax.pmean(loss, comm.axis)

    momenta, token, losses = [jnp.zeros_like(shard) for shard in shards], comm.token(), []
    for number in range(steps):
        own = batch_of(number, jax.process_index(), batch)
        x, labels = (jax.make_array_from_process_local_data(NamedSharding(mesh, divided), part) for part in own)
        shards, momenta, token, loss = step(shards, momenta, token, x, labels)
        losses.append(float(loss))
    return losses


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks-per-node", type=int, default=2)
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--batch", type=int, default=64, help="points of each rank")
    given = options.parse_args()

    zeropp.initialize()
    comm = zeropp.Communicator(given.ranks_per_node)
    lossless = zeropp.Formats.lossless()
    ways = {
        "JAX": lambda number, shape, function: jax_unit(comm, function),
        "lossless": lambda number, shape, function: zeropp.unit(comm, function, lossless),
        "8 and 4 bits": lambda number, shape, function: zeropp.unit(comm, function),
        "with hpZ": lambda number, shape, function: zeropp.unit(comm, function, replica=zeropp.Replica(comm, shape)),
    }
    losses = {name: losses_of(comm, make_unit, given.steps, given.batch) for name, make_unit in ways.items()}
    if jax.process_index() == 0:
        print("step " + "".join(f"{name:>14}" for name in ways))
        for step in range(given.steps):
            if step % 5 == 0 or step == given.steps - 1:
                print(f"{step:4} " + "".join(f"{of_way[step]:14.6f}" for of_way in losses.values()))


if __name__ == "__main__":
    main()
