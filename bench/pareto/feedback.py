#!/usr/bin/env python3
"""Error feedback under Adam, in NumPy and float64 alone, sharing no line with the library: what does it do?

feedback.py TEXT [--steps N] [--seeds N...] [--json FILE]

A small network that predicts a byte from the eight before it learns from two nodes, whose gradients are rotated and
rounded to two bits as `int2:64:signed:h32` rounds them. Prints the loss on held-out text for each of VARIANTS at each of
RATES, mean over seeds.
"""

import argparse
import json
import pathlib

import numpy as np

RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
NODES, BATCH, CONTEXT = 2, 128, 8
EMBEDDING, HIDDEN = 16, 128
BETA1, BETA2 = 0.9, 0.95
WINDOW, BLOCK = 32, 64

# Arguments of train(): rounding of gradients, error feedback, exact gradients for Adam's second moment.
VARIANTS = {
    "exact": {},
    "two bits": {"rounded": True},
    "two bits, feedback": {"rounded": True, "feedback": True},
    "two bits, second moment of exact gradients": {"rounded": True, "exact_moment": True},
    "two bits, feedback, second moment of exact gradients": {"rounded": True, "feedback": True, "exact_moment": True},
}


def hadamard(size):
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(size)


ROTATION = hadamard(WINDOW)


def two_bits(x):
    """x after rotation and rounding to codes -2 to 1; a block's element of largest magnitude has code -2."""
    blocks = (x.reshape(-1, WINDOW) @ ROTATION).reshape(-1, BLOCK)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    step = np.where(np.abs(extreme) < 1e-200, 1, extreme / -2)
    blocks = np.clip(np.rint(blocks / step), -2, 1) * step
    return (blocks.reshape(-1, WINDOW) @ ROTATION).reshape(x.shape)


class Network:
    """A network of embeddings, a hidden layer and a softmax, with one flat vector of parameters."""

    shapes = ((256, EMBEDDING), (CONTEXT * EMBEDDING, HIDDEN), (HIDDEN, 256))

    def __init__(self, seed):
        draw = np.random.default_rng(seed)
        self.flat = np.concatenate([draw.normal(0, shape[0]**-0.5, shape).ravel() for shape in self.shapes])
        parts, begin = [], 0
        for shape in self.shapes:
            parts.append(self.flat[begin:begin + shape[0] * shape[1]].reshape(shape))
            begin += shape[0] * shape[1]
        self.embedding, self.inner, self.outer = parts

    def loss(self, context, target, gradient=False):
        inputs = self.embedding[context].reshape(len(context), -1)
        hidden = np.tanh(inputs @ self.inner)
        logits = hidden @ self.outer
        logits -= logits.max(1, keepdims=True)
        odds = np.exp(logits)
        odds /= odds.sum(1, keepdims=True)
        rows = np.arange(len(target))
        loss = -np.log(odds[rows, target]).mean()
        if not gradient:
            return loss
        odds[rows, target] -= 1
        odds /= len(target)
        of_hidden = (odds @ self.outer.T) * (1 - hidden**2)
        of_embedding = np.zeros_like(self.embedding)
        np.add.at(of_embedding, context, (of_hidden @ self.inner.T).reshape(*context.shape, EMBEDDING))
        return np.concatenate([of_embedding.ravel(), (inputs.T @ of_hidden).ravel(), (hidden.T @ odds).ravel()])


def windows(text, begins):
    at = begins[:, None] + np.arange(CONTEXT + 1)
    both = text[at]
    return both[:, :-1], both[:, -1]


def train(text, steps, seed, peak, rounded=False, feedback=False, exact_moment=False):
    """Held-out loss after `steps` steps. The rate falls from `peak` to zero as a cosine."""
    draw = np.random.default_rng(seed + 1000)
    held_out = len(text) * 9 // 10
    network = Network(seed)
    first, second = np.zeros_like(network.flat), np.zeros_like(network.flat)
    residuals = np.zeros((NODES, network.flat.size))
    for step in range(1, steps + 1):
        exact, arrived = [], []
        for node in range(NODES):
            g = network.loss(*windows(text, draw.integers(0, held_out - CONTEXT - 1, BATCH)), gradient=True)
            exact.append(g)
            whole = g + residuals[node]
            arrived.append(two_bits(whole) if rounded else g)
            if feedback:
                residuals[node] = whole - arrived[-1]
        exact, arrived = np.mean(exact, 0), np.mean(arrived, 0)
        first = BETA1 * first + (1 - BETA1) * arrived
        second = BETA2 * second + (1 - BETA2) * (exact if exact_moment else arrived)**2
        rate = peak * min(1, step / (steps / 30)) * (1 + np.cos(np.pi * step / steps)) / 2
        network.flat -= rate * (first / (1 - BETA1**step)) / (np.sqrt(second / (1 - BETA2**step)) + 1e-8)
    begins = np.arange(held_out, len(text) - CONTEXT - 1, 7)[:20000]
    return network.loss(*windows(text, begins))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    text = np.frombuffer(args.text.read_bytes(), np.uint8).astype(np.int64)
    losses = {}
    for name, variant in VARIANTS.items():
        losses[name] = [np.mean([train(text, args.steps, seed, rate, **variant) for seed in args.seeds]) for rate in RATES]
        print(f"{name:55s}", *(f"{loss:.4f}" for loss in losses[name]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"steps": args.steps, "rates": RATES, "seeds": args.seeds, "losses": losses}))


if __name__ == "__main__":
    main()
