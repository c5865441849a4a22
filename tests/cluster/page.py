#!/usr/bin/env python3
"""Runs the commands of a page, and holds them to what the page says they print.

    page.py PAGE

Commands are the blocks marked `sh`, in the order of the page, each given to bash in this folder. Where a block marked `text`
follows, every line of it must be among the lines that they have printed; ranks print in any order.
"""

import re
import subprocess
import sys
from pathlib import Path

blocks = re.findall(r"^```(sh|text)\n(.*?)^```", Path(sys.argv[1]).read_text(), re.M | re.S)
wrong = 0
for i, (kind, command) in enumerate(blocks):
    if kind != "sh":
        continue
    print(f"$ {command}", end="", flush=True)
    ran = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    print(ran.stdout, end="", flush=True)
    said = blocks[i + 1][1] if i + 1 < len(blocks) and blocks[i + 1][0] == "text" else ""
    printed = [line.strip() for line in ran.stdout.splitlines()]
    for line in said.splitlines():
        if line.strip() not in printed:
            print(f"page.py: not printed, or not as often: {line}")
            wrong += 1
        else:
            printed.remove(line.strip())
if not any(kind == "sh" for kind, _ in blocks):
    sys.exit(f"page.py: {sys.argv[1]} has no commands")
sys.exit(wrong != 0)
