"""The report of apply()."""

from __future__ import annotations

import dataclasses

from .communicator import Traffic


@dataclasses.dataclass
class Row:
    """One FSDP unit, and the traffic of a rank in a step: with plain FSDP2 (`before`) and with zeropp (`after`). The all-reduce
    between replicas is part of it, and also stated alone. `microbatch` is what each further microbatch of a step adds with
    zeropp, if it reduces gradients too: weights have not changed."""

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
            line.append(str(r.microbatch.inter_node + r.microbatch.inter_site))
        if total.replicas_before != Traffic():
            head += ["replicas", "bytes to replicas, before", "bytes, after"]
            for line, r in zip(cells[1:], [*self.rows, total]):
                line += [r.replicas, str(r.replicas_before.bytes), str(r.replicas_after.bytes)]
        numbers = {c for c, name in enumerate(head) if name == "elements" or "bytes" in name}
        head.append("")
        for line, r in zip(cells[1:], [*self.rows, total]):
            line.append(r.note)
        widths = [max(len(line[c]) for line in cells) for c in range(len(head))]
        lines = [
            "  ".join(cell.rjust(w) if c in numbers else cell.ljust(w) for c, (cell, w) in enumerate(zip(line, widths)))
            for line in cells
        ]
        return "\n".join([line.rstrip() for line in lines] + [f"- {sentence}" for sentence in self.advice])
