"""Prints a row of torch.md from what a run has written: row.py FOLDER RATE MODE PRESET. Keeps the plain run's numbers in the
folder, for the rows after it."""

import json
import pathlib
import sys

folder, rate, mode, preset = pathlib.Path(sys.argv[1]), *sys.argv[2:]
run = json.loads((folder / "run.json").read_text())
links = json.loads((folder / "links.json").read_text())
sent = links["interfaces"][0]["sent_bytes"] / 1e6
kept = folder / "plain.json"
if preset == "none":
    kept.write_text(json.dumps([run["ms"], sent]))
plain_ms, plain_sent = json.loads(kept.read_text())
formats = "as it is" if preset == "none" else preset
print(
    f"| {rate} | {mode} | {formats} | {run['ms']:.0f} | {plain_ms / run['ms']:.2f}x | {sent:.1f} | "
    f"{plain_sent / sent:.1f}x | {run['held_out_loss']:.4f} |"
)
