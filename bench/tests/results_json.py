#!/usr/bin/env python3
"""Tests that JSON files have one record a line, also in bench/results, that this folder has no other data, that its
README.md is the report of its files, and that torch.md has the table of torch_overhead.md.

bench/tests/support.cpp expects this text from C++."""

import json
import pathlib
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
import report  # noqa: E402
import report_plots  # noqa: E402
from results_json import text, write  # noqa: E402

EXPECTED = r"""{
 "name": "\u0001 \"",
 "facts": {"a":1,"b":2.5},
 "rows": [
  {"a":{"b":[1,2]}},
  {"c":[],"d":null}
 ],
 "by_name": {
  "k": {"n":1},
  "l": {}
 },
 "none": []
}"""

value = json.loads(EXPECTED)
assert text(value) == EXPECTED, text(value)
assert text(value["rows"]) == '[\n {"a":{"b":[1,2]}},\n {"c":[],"d":null}\n]'
assert text([]) == "[]"
# As other pages call it.
assert report.table(["a", "b"], [["c", 1]]) == "| a | b |\n|---|---:|\n| c | 1 |\n" and report.table(["a"], []) == ""
assert text({4: (1, 2)}) == '{\n "4": [1,2]\n}'

with tempfile.TemporaryDirectory() as scratch:
    file = pathlib.Path(scratch, "facts.json")
    write(file, {"a": 1})
    with file.open() as old:
        write(file, {"a": 2})
        assert old.read() == text({"a": 1}) + "\n", "a writer that is stopped would leave a part of the file"
    assert file.read_text() == text({"a": 2}) + "\n" and [*file.parent.iterdir()] == [file]

for file in sorted((BENCH / "results").iterdir()):
    assert file.suffix in {".json", ".md", ".png"}, f"{file.name} belongs into no folder of results"
    if file.suffix == ".json":
        # Compares lines only, because C++ may print another last digit.
        lines, wanted = file.read_text().splitlines(), text(json.loads(file.read_text())).splitlines()
        assert len(lines) == len(wanted), f"{file.name} has {len(lines)} lines, one record a line makes {len(wanted)}"

report_plots.subprocess.run = lambda *_, **__: None  # no gnuplot
with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    for file in (BENCH / "results").glob("*.*"):
        if file.suffix == ".json" or file.name.startswith("why_"):
            shutil.copy(file, folder)
    (folder / "threads_2x2.all_gather_failed.json").touch()  # as a run that has failed leaves it
    report.write(folder)
    same = (folder / "README.md").read_text() == (BENCH / "results/README.md").read_text()
    assert same, "bench/results/README.md is not its files' report: python3 bench/report.py bench/results"
overhead = (BENCH / "results/torch_overhead.md").read_text().strip()
same = overhead in (BENCH / "results/torch.md").read_text()
assert same, "bench/results/torch.md has another table of calls than torch_overhead.md: bench/torch/report.py page bench/results"
print("results_json: ok")
