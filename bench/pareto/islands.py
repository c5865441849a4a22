#!/usr/bin/env python3
"""Local steps in NumPy and float64 alone, sharing no line with the library: how much do islands lose under AdamW?

islands.py TEXT [--steps N] [--seeds N...] [--json FILE]

feedback.py's network learns on two islands, exactly: nothing is rounded. Prints the loss on held-out text for each of
VARIANTS at each of RATES, mean over seeds.
"""

import argparse
import json
import pathlib

import numpy as np

from feedback import BETA1, BETA2, CONTEXT, Network, windows

RATES = (8e-3, 1.6e-2, 3.2e-2)
ISLANDS, BATCH = 2, 32

# Arguments of train(): steps between exchanges (0: synchronous), rate and momentum of the outer optimizer, part of the
# steps that are synchronous first, moments averaged at exchanges too.
VARIANTS = {
    "synchronous": {"every": 0},
    "every step": {"every": 1},
    "every 32 steps": {"every": 32},
    "every 32 steps, outer 0.7, 0.5": {"every": 32, "outer": (0.7, 0.5)},
    "every 32 steps, outer 0.7, 0.9": {"every": 32, "outer": (0.7, 0.9)},
    "every 32 steps, moments averaged too": {"every": 32, "moments": True},
    "every 32 steps, the first half synchronous": {"every": 32, "synchronous": 0.5},
    "every 128 steps": {"every": 128},
}


def train(text, steps, seed, peak, every, outer=(1.0, 0.0), synchronous=0.0, moments=False):
    """Held-out loss after `steps` steps. The rate falls from `peak` to zero as a cosine. `outer`: rate and momentum."""
    draw = np.random.default_rng(seed + 1000)
    held_out = len(text) * 9 // 10
    islands = [Network(seed) for _ in range(ISLANDS)]
    size = islands[0].flat.size
    first, second = np.zeros((ISLANDS, size)), np.zeros((ISLANDS, size))
    anchor, momentum = islands[0].flat.copy(), np.zeros(size)
    for step in range(1, steps + 1):
        gradients = np.array([island.loss(*windows(text, draw.integers(0, held_out - CONTEXT - 1, BATCH)), gradient=True)
                              for island in islands])
        together = every == 0 or step <= synchronous * steps
        if together:
            gradients[:] = gradients.mean(0)
        first = BETA1 * first + (1 - BETA1) * gradients
        second = BETA2 * second + (1 - BETA2) * gradients**2
        rate = peak * min(1, step / (steps / 30)) * (1 + np.cos(np.pi * step / steps)) / 2
        moves = rate * (first / (1 - BETA1**step)) / (np.sqrt(second / (1 - BETA2**step)) + 1e-8)
        for island, move in zip(islands, moves):
            island.flat -= move
        if together:
            anchor = islands[0].flat.copy()
        elif step % every == 0:
            difference = anchor - np.mean([island.flat for island in islands], 0)
            momentum = outer[1] * momentum + difference
            anchor = anchor - outer[0] * (difference + outer[1] * momentum)
            for island in islands:
                island.flat[:] = anchor
            if moments:
                first[:], second[:] = first.mean(0), second.mean(0)
    begins = np.arange(held_out, len(text) - CONTEXT - 1, 7)[:8000]
    return islands[0].loss(*windows(text, begins))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=640)  # A multiple of all intervals.
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    text = np.frombuffer(args.text.read_bytes(), np.uint8).astype(np.int64)
    losses = {}
    for name, variant in VARIANTS.items():
        losses[name] = [[train(text, args.steps, seed, rate, **variant) for seed in args.seeds] for rate in RATES]
        print(f"{name:45s}", *(f"{np.mean(of):.4f}" for of in losses[name]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"steps": args.steps, "rates": RATES, "seeds": args.seeds, "losses": losses}))


if __name__ == "__main__":
    main()
