"""Models and data of train.py: a byte-level GPT on text, or a vision transformer on scikit-learn's digits."""

from __future__ import annotations

import pathlib

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Transformer blocks between an embedding and a linear head."""

    def __init__(self, embed: nn.Module, layers: int, width: int, length: int, outputs: int, causal: bool):
        super().__init__()
        self.embed = embed
        self.position = nn.Embedding(length, width)
        self.layers = nn.ModuleList(Block(width, heads=4, causal=causal) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.embed(given) + self.position(torch.arange(given.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Text:
    """Predicts the next byte of a file, by default of the licence texts that Debian has."""

    CONTEXT = 64

    def __init__(self, path: str | None):
        if path is None:
            files = sorted(f for f in pathlib.Path("/usr/share/common-licenses").iterdir() if not f.is_symlink())
        else:
            files = [pathlib.Path(path)]
        self._text = torch.frombuffer(bytearray(b"".join(f.read_bytes() for f in files)), dtype=torch.uint8).long()
        self._held_out = len(self._text) * 19 // 20

    def model(self, layers: int, width: int) -> nn.Module:
        return Transformer(nn.Embedding(256, width), layers, width, self.CONTEXT, 256, causal=True)

    def _windows(self, begins: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        windows = torch.stack([self._text[b : b + self.CONTEXT + 1] for b in begins])
        return windows[:, :-1], windows[:, 1:]

    def batch(self, size: int, draws: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return self._windows(torch.randint(self._held_out - self.CONTEXT - 1, (size,), generator=draws))

    def held_out(self, rank: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
        """This rank's windows. Every rank has equally many, because a forward pass is collective."""
        count = min(256, (len(self._text) - self._held_out - 1) // self.CONTEXT) // ranks
        return self._windows(self._held_out + (rank * count + torch.arange(count)) * self.CONTEXT)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs.flatten(0, 1).float(), targets.flatten())


class Digits:
    """Classifies scikit-learn's digits, images of 8 x 8 pixels, from 16 patches of 2 x 2."""

    PATCHES = 16

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        patches = torch.tensor(images, dtype=torch.float32).view(-1, 4, 2, 4, 2).permute(0, 1, 3, 2, 4)
        # Shuffled, because neighbours are by one writer.
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
        self._images = (patches.reshape(len(labels), self.PATCHES, 4) / 16 - 0.5)[order]
        self._labels = torch.tensor(labels)[order]
        self._held_out = len(labels) * 4 // 5

    def model(self, layers: int, width: int) -> nn.Module:
        return Transformer(nn.Linear(4, width), layers, width, self.PATCHES, 10, causal=False)

    def batch(self, size: int, draws: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.randint(self._held_out, (size,), generator=draws)
        return self._images[chosen], self._labels[chosen]

    def held_out(self, rank: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
        count = (len(self._labels) - self._held_out) // ranks
        begin = self._held_out + rank * count
        return self._images[begin : begin + count], self._labels[begin : begin + count]

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs.mean(dim=1).float(), targets)
