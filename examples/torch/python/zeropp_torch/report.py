"""Tables for users: the report of apply(), and the changes of weights that nodes keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .communicator import Places, Traffic, volume
from .formats import OWN_TYPE, PRESETS


@dataclasses.dataclass
class Row:
    """One FSDP unit, and the traffic of a rank in a step: with plain FSDP2 (`before`) and with zeropp (`after`). The all-reduce
    between replicas is part of it, and also stated alone. `microbatch` is what each further microbatch of a step adds with
    zeropp, if it reduces gradients too: weights have not changed. A unit that is left out has 0 bytes in all of them."""

    unit: str
    elements: int
    weights: str = "-"
    gradients: str = "-"
    before: Traffic = Traffic()
    after: Traffic = Traffic()
    microbatch: Traffic = Traffic()
    replicas: str = "-"
    replicas_before: Traffic = Traffic()
    replicas_after: Traffic = Traffic()
    note: str = ""

    def tell(self, words: str) -> None:
        """Appends `words` to the note."""
        self.note = f"{self.note}; {words}" if self.note else words


@dataclasses.dataclass
class Report:
    """Rows in the model's order, and sentences of advice. Prints as a table of bytes."""

    rows: list[Row]
    advice: list[str]

    @property
    def before(self) -> Traffic:
        return sum((row.before for row in self.rows), Traffic())

    @property
    def after(self) -> Traffic:
        return sum((row.after for row in self.rows), Traffic())

    def __str__(self) -> str:
        microbatch = sum((r.microbatch for r in self.rows), Traffic())
        total = Row("all", sum(r.elements for r in self.rows), "", "", self.before, self.after, microbatch, "")
        total.replicas_before = sum((r.replicas_before for r in self.rows), Traffic())
        total.replicas_after = sum((r.replicas_after for r in self.rows), Traffic())
        head = ["unit", "elements", "weights", "gradients"]
        cells = [head] + [[r.unit, str(r.elements), r.weights, r.gradients] for r in [*self.rows, total]]
        levels = ["intra_node", "inter_node", "inter_site"]
        for level in levels if total.before.inter_site or total.after.inter_site else levels[:2]:
            head += [level.replace("_", "-") + " bytes, before", "bytes, after"]
            for line, r in zip(cells[1:], [*self.rows, total]):
                line += [str(getattr(r.before, level)), str(getattr(r.after, level))]
        head.append("bytes between nodes, further microbatch")
        for line, r in zip(cells[1:], [*self.rows, total]):
            line.append(str(r.microbatch.between_nodes))
        if total.replicas_before != Traffic():
            head += ["replicas", "bytes to replicas, before", "bytes, after"]
            for line, r in zip(cells[1:], [*self.rows, total]):
                line += [r.replicas, str(r.replicas_before.bytes), str(r.replicas_after.bytes)]
        head.append("")
        for line, r in zip(cells[1:], [*self.rows, total]):
            line.append(r.note)
        return _table(cells, self.advice)


@dataclasses.dataclass
class Changes:
    """Changes of weights of which every node keeps a copy, as one rank sees them: of one unit, or of several together.

    `updates` is the number of forward passes since apply() that found changed weights: any rank's, or on one node this rank's. Passes
    that must send whole weights do not count, as the first one and those after refresh(). `elements` is the number of this rank's
    weights, with FSDP's padding, summed over these passes; `changed` is the number of them that had other bits than before.
    `sent` are bytes from this rank to other nodes in these passes. `whole` are the bytes of whole weights in their own type,
    of `whole_elements` elements. `exact` is true of exact differences.
    """

    unit: str
    exact: bool
    updates: int = 0
    elements: int = 0
    changed: int = 0
    sent: int = 0
    whole: int = 0
    whole_elements: int = 0
    parts: Sequence[Changes] = ()

    @staticmethod
    def of(parts: Sequence[Changes]) -> Changes:
        """The sum of `parts`, of which each is a line of the table that the result prints."""
        # Frozen weights are kept without differences, and have no updates.
        total = Changes("all", all(part.exact for part in parts if part.updates), parts=parts)
        for name in ("updates", "elements", "changed", "sent", "whole", "whole_elements"):
            setattr(total, name, sum(getattr(part, name) for part in parts))
        return total

    @property
    def share(self) -> float:
        """The share of weights that change in an update, from 0 to 1."""
        return self.changed / self.elements if self.elements else 0.0

    @property
    def bits(self) -> float:
        """Bits that cross nodes for each weight in an update; 0 if nothing crosses nodes."""
        return 8 * self.sent / self.whole_elements if self.whole_elements else 0.0

    @property
    def advice(self) -> list[str]:
        """Sentences on the bits of an update, and on formats that would send less."""
        if self.updates == 0:
            return ["No weights have changed between two forward passes."]
        if self.sent == 0:
            return ["No weights cross nodes: the ranks that share them are on one node."]
        sentences = [f"An update takes {self.bits:.2f} bits a weight, {self.whole / self.sent:.1f} times fewer than whole weights."]
        if self.exact:
            sentences.append(f"zeropp-plan --advise --exact-bits {min(max(self.bits, 0.01), 16):.2f} predicts steps with such differences.")
        fewer = [f'"{name}" ({bits:.2f})' for name, bits in _bits_of_presets().items() if bits < self.bits]
        if fewer:
            sentences.append(f"Presets with fewer bits a weight, which round weights: {', '.join(fewer)}.")
        return sentences

    def __str__(self) -> str:
        head = ["unit", "updates", "weights that change, %", "bits a weight", "bytes between nodes", "bytes of whole weights"]
        cells = [head] + [
            [r.unit, str(r.updates), f"{100 * r.share:.1f}", f"{r.bits:.2f}", str(r.sent), str(r.whole)] for r in [*self.parts, self]
        ]
        return _table(cells, self.advice)


def _bits_of_presets() -> dict[str, float]:
    """Bits between nodes for each weight, by presets with a format other than the weights' type."""
    elements, places, bits = 1 << 16, Places([0, 1]), {}
    for name, preset in PRESETS.items():
        if "differences" in preset:
            sent = volume("zeropp_update_gather", [preset["differences"], "bf16"], 2 * elements, places, 0)
        elif preset["weights"] != OWN_TYPE:
            sent = volume("zeropp_all_gather", [preset["weights"]], 2 * elements, places, 0)
        else:
            continue
        bits[name] = 8 * sent.inter_node / elements
    return bits


def _table(cells: Sequence[Sequence[str]], sentences: Sequence[str]) -> str:
    """Lines of `cells`, below one of headings, in columns; then `sentences`. Numbers are set to the right."""
    head = cells[0]
    numbers = {c for c, name in enumerate(head) if any(word in name for word in ("elements", "bytes", "bits", "%", "updates"))}
    widths = [max(len(line[c]) for line in cells) for c in range(len(head))]
    lines = [
        "  ".join(cell.rjust(w) if c in numbers else cell.ljust(w) for c, (cell, w) in enumerate(zip(line, widths)))
        for line in cells
    ]
    return "\n".join([line.rstrip() for line in lines] + [f"- {sentence}" for sentence in sentences])
