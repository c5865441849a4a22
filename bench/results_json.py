"""JSON files with one record a line, so that a new measurement changes few lines and a diff shows which.

An element of a list is a record. A container that holds other containers has a line for each member; any other container
shares its key's line. bench/support/json_file.hpp writes the same form from C++.
"""

import json


def text(value, depth=0):
    """JSON text of `value`, `depth` containers deep, one record a line."""
    containers = (dict, list, tuple)
    members = list(value.values() if isinstance(value, dict) else value) if isinstance(value, containers) else []
    if not members or (depth > 0 and not any(isinstance(member, containers) for member in members)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, dict):
        lines = [f"{json.dumps(str(key), ensure_ascii=False)}: {text(member, depth + 1)}" for key, member in value.items()]
    else:
        lines = [json.dumps(member, ensure_ascii=False, separators=(",", ":")) for member in members]
    first, last = "{}" if isinstance(value, dict) else "[]"
    margin = "\n" + " " * depth
    return first + ",".join(margin + " " + line for line in lines) + margin + last


def write(path, value):
    """Writes `value` to the file `path`, a pathlib.Path. A process that is stopped meanwhile leaves the old file."""
    part = path.with_suffix(".part")
    part.write_text(text(value) + "\n", encoding="utf-8")
    part.rename(path)
