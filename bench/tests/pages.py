#!/usr/bin/env python3
"""Tests that pages of bench/results are made of the data beside them, and that trainings, which leave no data there, become
pages."""

import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
BENCH = pathlib.Path(__file__).resolve().parents[1]
RESULTS = BENCH / "results"


def draw(command, *, input="", **_):
    """In place of gnuplot, whose texts double an apostrophe."""
    assert "it's" not in " ".join(map(str, command)) + input, f"an apostrophe ends a text: {command} {input}"


subprocess.run = draw


def module(file):
    specification = importlib.util.spec_from_file_location(file.parent.name, BENCH / file)
    made = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(made)
    return made


def require_page(page, made):
    assert made.read_text() == (RESULTS / page).read_text(), f"bench/results/{page} is not its data's page"


def write_training(folder, run, seed, names):
    runs = [{"name": name, "held_out_loss": 2 + seed + i, "inter_node_bytes_per_step": 8} for i, name in enumerate(names)]
    facts = {"parameters": 25, "nodes": 2, "ranks_per_node": 2, "steps": 20, "seed": seed, "runs": runs}
    (folder / f"{run}.json").write_text(json.dumps(facts))
    losses = "".join(f"\n{i}" + " 2.5" * len(names) for i in range(20))
    (folder / f"{run}.dat").write_text(" ".join(["step", *names]) + losses)


with tempfile.TemporaryDirectory(prefix="it's") as scratch:
    folder = pathlib.Path(scratch)
    for file in [*RESULTS.glob("*.json"), RESULTS / "scale_explained.md", RESULTS / "torch_overhead.md"]:
        shutil.copy(file, folder)
    for name in ("accuracy", "scale"):
        sys.argv = ["report.py", scratch]
        module(pathlib.Path(name, "report.py")).main()
        require_page(f"{name}.md", folder / f"{name}.md")
    module(pathlib.Path("torch", "report.py")).page(folder)
    require_page("torch.md", folder / "torch.md")
    module(pathlib.Path("compile_time", "compile_time.py")).write_table(
        folder / "compile_time.md", json.loads((RESULTS / "compile_time.json").read_text()))
    require_page("compile_time.md", folder / "compile_time.md")

    write_training(folder, "seed3", 3, ["of other runs"])
    for seed in (1, 2):
        write_training(folder, f"seed{seed}", seed, ["bf16", "int4"])
        for run in ("whole", "lost", "bf16", "fp32"):
            write_training(folder, f"{run}.{seed}", seed, ["hpz"])
    for name, row, *seeds in (("convergence", "| int4 | ", "--seeds", "1", "2"), ("recovery", "| mirrored in bf16 | ", "1", "2")):
        sys.argv = ["report.py", scratch, scratch, *seeds]
        module(pathlib.Path(name, "report.py")).main()
        assert row in (folder / f"{name}.md").read_text(), f"{name}.md has no {row}"
print("pages: ok")
