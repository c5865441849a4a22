#!/usr/bin/env python3
"""Tests that pages of bench/results are made of the data beside them, and that trainings and soaks, which leave no data there or
fail, become pages."""

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
    return subprocess.CompletedProcess(command, 1)


subprocess.run = draw


def module(file):
    specification = importlib.util.spec_from_file_location(file.parent.name, BENCH / file)
    made = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(made)
    return made


def require_page(page, made):
    assert made.read_text() == (RESULTS / page).read_text(), f"bench/results/{page} is not its data's page"


def write_training(folder, run, seed, names, **more):
    runs = [{"name": name, "held_out_loss": 2 + seed + i, "inter_node_bytes_per_step": 8, **more} for i, name in enumerate(names)]
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
    torch = module(pathlib.Path("torch", "report.py"))
    torch.page(folder)
    require_page("torch.md", folder / "torch.md")
    # New runs take the place of those over the same links in the same mode.
    (folder / "again").mkdir()
    run = {"links": "loopback", "mode": "DDP", "new": True}
    (folder / "again" / "torch.json").write_text(json.dumps([run, run]))
    before = torch.runs_in(folder)
    torch.take(folder, folder / "again")
    others = [r for r in before if (r["links"], r["mode"]) != ("loopback", "DDP")]
    assert others != before and torch.runs_in(folder) == [*others, run, run]
    assert torch.runs_in(folder / "again") == []
    # No conclusion that the ratios do not support.
    contents = json.loads((folder / "entropy.json").read_text())
    for row in contents["entropy"]:
        row["entropy_bits"] = row["code_bits"] / 2
    (folder / "entropy.json").write_text(json.dumps(contents))
    sys.argv = ["report.py", scratch]
    module(pathlib.Path("accuracy", "report.py")).main()
    page = (folder / "accuracy.md").read_text()
    assert "ideal coder are sent: more than the 1.25" in page and "so no coder is built" not in page
    module(pathlib.Path("compile_time", "compile_time.py")).write_table(
        folder / "compile_time.md", json.loads((RESULTS / "compile_time.json").read_text()))
    require_page("compile_time.md", folder / "compile_time.md")

    write_training(folder, "seed3", 3, ["of other runs"])
    for seed in (1, 2):
        write_training(folder, f"seed{seed}", seed, ["bf16", "int4"])
        write_training(folder, f"whole.{seed}", seed, ["hpz"])
        for run in ("lost", "bf16", "fp32"):
            write_training(folder, f"{run}.{seed}", seed, ["hpz"], recoveries=[{"step": 9, "ranks": 5}])
    for name, row, *seeds in (("convergence", "| int4 | ", "--seeds", "1", "2"), ("recovery", "| mirrored in bf16 | ", "1", "2")):
        sys.argv = ["report.py", scratch, scratch, *seeds]
        module(pathlib.Path(name, "report.py")).main()
        assert row in (folder / f"{name}.md").read_text(), f"{name}.md has no {row}"
    # A second rank that was lost makes a training another one.
    write_training(folder, "fp32.2", 2, ["hpz"], recoveries=[{"step": 9, "ranks": 5}, {"step": 12, "ranks": 4}])
    try:
        module(pathlib.Path("recovery", "report.py")).main()
        raise AssertionError("a page was made of a training that lost two ranks")
    except SystemExit as problem:
        assert "mirrored in fp32, seed 2: " in str(problem)

    # A study takes a result that it keeps in place of an older one among the runs, which would replace it.
    study = module(pathlib.Path("pareto", "study.py"))
    (folder / "runs").mkdir()
    (folder / "text").write_text("text")
    training = study.Entry(""), 2, 1e-3
    made = json.dumps(study.Trainings(folder, folder / "runs", folder / "text").made(*training))
    (folder / "runs" / "bf16.2.json").write_text('"older"')
    (folder / "runs" / "bf16.2.made").write_text("of another configuration")
    (folder / "kept.json").write_text(json.dumps({"bf16.2": {"made": made, "result": "newer"}}))
    kept = study.KeptTrainings(folder, folder / "runs", folder / "text", folder / "kept.json")
    assert kept("bf16", *training) == "newer"
    assert json.loads((folder / "kept.json").read_text())["bf16.2"]["result"] == "newer"

    # A soak that ends before the first fault, and a row of faults with none, have problems.
    sys.path.append(str(BENCH / "reliability"))
    sys.argv = ["soak.py", "--program", "missing", "--results", scratch]
    assert module(pathlib.Path("reliability", "soak.py")).main() == 1
    for problem in ("the program ended with 1", "no fault was made", "rank 3: no end"):
        assert problem in (folder / "soak.md").read_text(), f"soak.md does not say: {problem}"
    faults = module(pathlib.Path("reliability", "faults.py"))
    killed = faults.Row("killed", "a rank killed", faults.EXACT, ["wait:0.1", "kill:3"], killed=(3,))
    for rank in range(3):
        (folder / f"rank{rank}.jsonl").write_text(
            '{"event": "end", "outcome": "exact", "release_seconds": 0, "descriptors": [9, 9], "resident_kib": [9, 9]}\n')
    assert faults.judge(killed, folder, 0)["problems"] == ["the fault was not made: 0 of the steps wait:0.1, kill:3"]
    (folder / "injector.jsonl").write_text('{"event": "wait:0.1", "wall": 1}\n{"event": "kill:3", "wall": 2}\n{"eve')
    assert faults.judge(killed, folder, 0)["problems"] == []
print("pages: ok")
