#!/usr/bin/env python3
"""Draws what docs/programs/messages.cpp has recorded: a picture of each collective on 2 nodes of 3 ranks.

    build/messages | python3 docs/figures.py FOLDER

docs/build.sh compiles that program and draws the pictures of the site; the repository has none.
Every cell, arrow and number of slots is of a message that was sent. A picture brings its own background, for light and
for dark pages, and its letters are large enough for a phone.
"""

import json
import pathlib
import sys

PER_NODE, RANKS = 3, 6
WIDTH, MARGIN, GAP = 640, 8, 16
COLUMN = (WIDTH - 2 * MARGIN - GAP) / RANKS
CELL_W, CELL_H = 28, 28
WATCHED = 1  # the rank whose messages stand out

STYLE = """
.page { fill: #fbfbfd; stroke: #c8ccd4 } .node { fill: #eef0f4 } text { font-family: sans-serif; fill: #1d2430 }
.empty { fill: none; stroke: #c2c7d0 } .held { fill: #2f6fb5 } .digit { fill: #fff } .weak { fill: #1d2430 }
.wire { stroke: #a3abb8 } .watched { stroke: #d2601a } .tip { fill: #a3abb8 } .watched_tip { fill: #d2601a }
.kept { fill: #d2601a }
@media (prefers-color-scheme: dark) {
.page { fill: #15181e; stroke: #3a414d } .node { fill: #1f242d } text { fill: #e3e7ee }
.empty { stroke: #4a5260 } .held { fill: #4c93e0 } .digit { fill: #fff } .weak { fill: #e3e7ee }
.wire { stroke: #667080 } .watched { stroke: #f08a3e } .tip { fill: #667080 } .watched_tip { fill: #f08a3e }
.kept { fill: #f08a3e } }
"""

# What a recording does not say: the words of each row, from the top, and of each hop.
WORDS = {
    "quantized_all_gather": {
        "rows": ["each rank's shard, encoded once", "its messages of both nodes, as they came",
                 "decoded: the whole tensor"],
    },
    "secondary_partition_gather": {
        "rows": ["kept since forward: 1/3 of the tensor", "decoded: the whole tensor"],
        "parts": "slice",
    },
    "hierarchical_quantized_reduce_scatter": {
        "rows": ["each rank's gradient, encoded", "sums of the node, encoded", "sums of all ranks: each rank's shard"],
        "sums": True,
    },
    "error_feedback": {
        "rows": ["gradient + residuals, encoded", "sums of the node + residuals, encoded",
                 "sums of all ranks: each rank's shard"],
        "sums": True,
    },
    "quantized_all_reduce": {
        "rows": ["each rank's gradient, encoded", "sums of the node, encoded", "sums of all ranks, encoded",
                 "the same of both nodes, as they came", "decoded: the whole sum, on every rank"],
        "sums": True,
    },
    "quantized_all_reduce_gather": {
        "rows": ["each rank's gradient, encoded", "those of two ranks, as they came", "summed by every rank"],
        "sums": True,
    },
    "quantized_update": {
        "rows": ["kept: version 1; own slice's difference is sent", "differences added: version 2",
                 "decoded: the whole tensor"],
    },
}


def centre(rank):
    """Where a rank's column has its middle."""
    return MARGIN + rank * COLUMN + (GAP if rank >= PER_NODE else 0) + COLUMN / 2


def hop_text(messages, part):
    """One hop in words, from its messages."""
    others = [m for m in messages if m["from"] != m["to"]]
    within = {m["from"] // PER_NODE == m["to"] // PER_NODE for m in others}
    assert len(within) == 1, "a hop is either inside nodes or across them"
    peers = {sum(m["from"] == r for m in others) for r in range(RANKS)}
    slots = {len(m["carries"]) for m in others}
    assert len(peers) == 1 and len(slots) == 1, "all ranks send alike"
    to, of = peers.pop(), slots.pop()
    where = "inside the node" if within.pop() else "across nodes"
    return f"{where}: {of} {part}{'s' if of > 1 else ''} to {'its counterpart' if to == 1 else f'each of {to}'}"


def held_by(pairs):
    """slice -> how many ranks' values are in it."""
    held = {}
    for part, ranks in pairs:
        held[part] = held.get(part, 0) + bin(ranks).count("1")
    return held


class Picture:
    def __init__(self):
        self.parts = []
        self.y = MARGIN + 6

    def text(self, x, y, words, size=20, anchor="start", css=""):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"'
                          + (f' class="{css}"' if css else "") + f">{words}</text>")

    def ranks(self):
        for node in range(RANKS // PER_NODE):
            middle = (centre(node * PER_NODE) + centre(node * PER_NODE + PER_NODE - 1)) / 2
            self.text(middle, self.y + 18, f"node {node}", anchor="middle")
        for rank in range(RANKS):
            self.text(centre(rank), self.y + 44, f"rank {rank}", anchor="middle",
                      css="kept" if rank == WATCHED else "")
        self.y += 54

    def row(self, words, held, sums, kept=()):
        """What each rank has: of each slice how many ranks' values. Cells are where the tensor has them: slots go down
        the columns."""
        self.text(MARGIN + 6, self.y + 20, words)
        self.y += 30
        for node in range(RANKS // PER_NODE):
            left = centre(node * PER_NODE) - COLUMN / 2 + 2
            self.parts.append(f'<rect class="node" x="{left:g}" y="{self.y:g}" width="{PER_NODE * COLUMN - 4:g}" '
                              f'height="{2 * CELL_H + 12}" rx="6"/>')
        for rank in range(RANKS):
            for part in range(RANKS):
                x = centre(rank) + (part % PER_NODE - PER_NODE / 2) * CELL_W
                y = self.y + 6 + part // PER_NODE * CELL_H
                count = held[rank].get(part, 0)
                box = f'x="{x + 1:g}" y="{y + 1:g}" width="{CELL_W - 2}" height="{CELL_H - 2}" rx="3"'
                self.parts.append(f'<rect class="empty" {box}/>')
                if count == 0:
                    continue
                strength = {1: 0.22, 2: 0.35, 3: 0.6}.get(count, 1) if sums else 1
                self.parts.append(f'<rect class="held" fill-opacity="{strength}" {box}/>')
                self.text(x + CELL_W / 2, y + 21, part, anchor="middle", css="weak" if strength < 0.5 else "digit")
                if part in kept:
                    self.parts.append(f'<circle class="kept" cx="{x + CELL_W - 4:g}" cy="{y + 4:g}" r="5"/>')
        self.y += 2 * CELL_H + 12

    def hop(self, messages, part):
        self.text(MARGIN + 6, self.y + 24, hop_text(messages, part), size=19)
        top, bottom = self.y + 32, self.y + 92
        for watched in (False, True):
            for m in messages:
                if m["from"] == m["to"] or (m["from"] == WATCHED) != watched:
                    continue
                start = centre(m["from"]) + 8 * (m["to"] - m["from"]) / RANKS
                end = centre(m["to"]) + 24 * (m["from"] - m["to"]) / RANKS
                css = "watched" if watched else "wire"
                self.parts.append(f'<line class="{css}" x1="{start:g}" y1="{top:g}" x2="{end:g}" y2="{bottom - 10:g}" '
                                  f'stroke-width="{3.5 if watched else 1.6}" marker-end="url(#{css})"/>')
        self.y = bottom + 2

    def svg(self, title):
        height = self.y + MARGIN
        marker = "".join(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="{size}" markerHeight="{size}" '
            f'markerUnits="userSpaceOnUse" orient="auto"><path class="{tip}" d="M0 0 L8 4 L0 8 z"/></marker>'
            for name, tip, size in (("wire", "tip", 10), ("watched", "watched_tip", 14)))
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">',
            f"<title>{title}</title><style>{STYLE}</style><defs>{marker}</defs>",
            f'<rect class="page" x="1" y="1" width="{WIDTH - 2}" height="{height - 2:g}" rx="8"/>',
            *self.parts, "</svg>", ""])


def draw(name, lines):
    words = WORDS[name]
    sums = words.get("sums", False)
    states, residuals, hops = {}, {}, {}
    for line in lines:
        if line.get("state") == "residuals":
            residuals[line["what"]] = line["holds"]
        elif "state" in line:
            states.setdefault(line["state"], {})[line["rank"]] = held_by(line["holds"])
        else:
            hops.setdefault(line["operation"], []).append(line)

    def sent(messages):
        """What each rank has for all of its peers, itself too."""
        one = {r: {tuple(p) for m in messages if m["from"] == r for p in m["carries"]} for r in range(RANKS)}
        return {r: held_by(one[r]) for r in range(RANKS)}

    rows = [states["before"]]
    for number in sorted(hops)[1:]:
        rows.append(states["between"] if number == 1 and "between" in states else sent(hops[number]))
    rows.append(states["after"])
    assert len(rows) == len(words["rows"]), f"{name}: {len(rows)} rows, {len(words['rows'])} texts"

    picture = Picture()
    picture.ranks()
    for number, row in enumerate(rows):
        kept = ()
        if residuals and number < len(hops):
            kept = range(RANKS)
            slots = residuals["intra_node" if number == 0 else "inter_node"]
            assert all(len(row[r]) == slots for r in range(RANKS)), "residuals are of what is encoded"
        picture.row(words["rows"][number], row, sums, kept)
        if number < len(hops):
            picture.hop(hops[sorted(hops)[number]], words.get("parts", "slot"))
    return picture.svg(name + " on 2 nodes of 3 ranks")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    recorded = json.load(sys.stdin)
    assert recorded.keys() == WORDS.keys(), "a picture without words, or words without a picture"
    for name, lines in recorded.items():
        (folder / f"{name}.svg").write_text(draw(name, lines))


if __name__ == "__main__":
    main()
