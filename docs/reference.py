#!/usr/bin/env python3
"""Writes the reference, one Markdown page for each header, and fails where a public name has no comment.

    docs/reference.py XML HEADERS PAGES

XML is Doxygen's, made of HEADERS (include/zeropp); pages are written below PAGES.

Why no Breathe: of the same XML, of Doxygen 1.9.4, Breathe 5.1 shows concepts without their requirements, template
parameters in one line, and the columns of a contract (Shapes, Result, Moves) run together. It was tried.

What needs a comment is every name in namespace zeropp that is not in a `detail` namespace, macros, and public members.
A comment is that of all declarations that follow without a blank line. Overloads share one. Members need none of their
own where the comment of their class, or a concept, spells them; neither do the fields that follow the head of a class
without a blank line, constructors, destructors, operators, and specialisations.
"""

import re
import sys
from pathlib import Path

import public_names

ROOMS = {
    "": ("Entry headers", "What a program includes: everything for one kind of memory and network."),
    "collective": ("Collectives", "The primitives, and what their calls are made of."),
    "quantizer": ("Quantizers", "What the bytes of a message mean: arithmetic on one block."),
    "layout": ("Layout", "Where elements lie: shards of tensors and lists, chunks, messages."),
    "topology": ("Topologies", "Who is who: integers only, no communication."),
    "transport": ("Transports", "How bytes move between ranks, and decorators that count, check, checksum or stage."),
    "execution": ("Executions", "Where and in what order work runs."),
    "codec": ("Codecs", "Who turns elements into messages and back: loops on the host, kernels on the GPU."),
    "elastic": ("Elastic", "How weights and shards of dead ranks come to the survivors."),
    "local_steps": ("Local steps", "How islands train by themselves and exchange their progress rarely."),
    "plan": ("Plans", "What a training step will send, take and last, before anything runs."),
    "core": ("Core", "Words that every room uses: element types, views, errors, workspace."),
}

# Before which a declaration may go on in another line.
OPERATORS = re.compile(r" (&&|\|\|) [^.]|(?<!&) requires\b")


def markdown(comment, public):
    """The comment as Markdown: paragraphs, and lists of definitions for what it has in columns."""
    blocks, kind = [], None
    for line in comment:
        indent = len(line) - len(line.lstrip())
        row = re.match(r" +(`[^`]+`(?:, `[^`]+`)*) +(\S.*)$", line)
        row = row or re.match(r" *(\S(?:\S| (?! )){,30}) {2,}(\S.*)$", line)
        if not line.strip():
            kind = None
        elif kind == "row" and indent > blocks[-1][3]:
            blocks[-1][2].append(line.strip())
        elif row:
            blocks.append(("row", row[1], [row[2]], indent))
            kind = "row"
        elif kind == "text":
            blocks[-1][2].append(line.strip())
        else:
            blocks.append(("text", "", [line.strip()], 0))
            kind = "text"
    out = []
    for kind, label, lines, _ in blocks:
        text = inline(" ".join(lines), public)
        out.append(f"{inline(label, public)}\n: {text}\n" if kind == "row" else text + "\n")
    return "\n".join(out)


def inline(text, public):
    """Text without accidents of Markdown; public names of several words are code, which the site links."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        plain = re.sub(r"([\\*\[\]<>#$|{}])", r"\\\1", parts[i])
        parts[i] = re.sub(r"\b[a-z]\w*_\w+\b", lambda m: f"`{m[0]}`" if m[0] in public else m[0], plain)
    return "".join(parts)


def code(*texts):
    return "```cpp\n" + "\n".join(map(wrapped, texts)) + "\n```\n"


def wrapped(text, width=92):
    """A declaration in lines that fit a page; the headers' are longer."""
    if "//" in text or max(map(len, text.split("\n"))) <= width:
        return text
    body = re.search(r"\{\n.*", text, re.S) if re.search(r"^concept ", text, re.M) else None
    head = re.sub(r"\s+", " ", re.sub(r"([<(])\n\s*", r"\1", text[: body.start() + 1] if body else text))
    lines, start, depth, indent = [], 0, 0, ""
    breaks = []  # (depth, place) where the line may end
    template = head.startswith("template <")
    for at, sign in enumerate(head):
        opens = sign in "([{" or sign == "<" and head[at + 1] not in " ="  # not where it compares
        closes = sign in ")]}" or sign == ">" and head[at - 1] not in "-= "
        depth += opens - closes
        if template and depth == 0 and sign == ">":
            lines.append(indent + head[start : at + 1])
            start, breaks, indent = at + 2, [], ""
            template = head.startswith("template <", start)
        elif sign == "," and depth or OPERATORS.match(head, at):
            breaks.append((depth, at + (sign == ",")))
        if at + 1 - start + len(indent) > width and breaks:
            late = [place for place in breaks if place[1] - start > width // 2] or breaks
            end = min(late, key=lambda place: (place[0], -place[1]))[1]
            lines.append(indent + head[start:end].strip())
            start, breaks, indent = end + 1, [place for place in breaks if place[1] > end], "    "
    return "\n".join([*lines, indent + head[start:]]) + (body[0][1:] if body else "")


def toctree(pages):
    """A table of contents, of names as short as where they stand allows."""
    entries = (f"{page.split('/')[-1]} </reference/{page}>" if "/" in page else f"/reference/{page}" for page in pages)
    return "\n".join(["```{toctree}", ":hidden:", "", *entries, "```", ""])


def target(name):
    return f"```{{public-name}} {name}\n```\n"


def section(names, public):
    """One public name: its declarations, each with its comment, and its members."""
    out = [target(names[0].anchor), f"## {names[0].name}\n"]
    for group in by_comment(names):
        out += [code(*(name.text for name in group)), markdown(group[0].comment, public)]
    owner = names[0]
    if not owner.members:
        return out
    silent = [member for member in owner.members if not member.comment]
    marked = {owner.anchor + "::" + owner.name}
    for group in by_comment([member for member in owner.members if member.comment]):
        new = dict.fromkeys(member.anchor for member in group if member.anchor not in marked)
        marked.update(new)
        out += ["::::{container} member\n", *map(target, new), code(*(member.text for member in group))]
        out += [markdown(group[0].comment, public), "::::\n"]
    if silent:
        out += ["::::{container} member\n", code(*(member.text for member in silent))]
        out += ["What these are, the comment above says, or the concept that asks for them.\n", "::::\n"]
    return out


def by_comment(names):
    """The names in groups that share a comment; what has none joins the group before it."""
    groups = []
    for name in names:
        if groups and (not name.comment or name.comment is groups[-1][0].comment):
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def main(xml, folder, pages):
    names, headers = public_names.read(xml, folder)
    if not names:
        raise SystemExit(f"docs/reference.py: no public name in {xml}")
    missing = public_names.without_comment(names, headers)
    for name in missing:
        kind = {"typedef": "type", "define": "macro"}.get(name.kind, name.kind)
        print(f"include/{name.header}:{name.line}: the {kind} {name.anchor} has no comment", file=sys.stderr)
    write_pages(names, headers, pages, {name.name for name in names})
    if missing:
        raise SystemExit(f"docs/reference.py: {len(missing)} public names have no comment")
    print(f"reference: {len(names)} public names and {sum(len(n.members) for n in names)} public members "
          f"of {len(headers)} headers")


def write_pages(names, headers, pages, public):
    entries = included_by(headers)
    rooms = {room: [] for room in ROOMS}
    for path, header in headers.items():
        parts = path.split("/")
        own = [name for name in names if name.header == path]
        if len(parts) > 3 and not own:
            continue  # inside a codec
        room = parts[1] if len(parts) > 2 else ""
        rooms[room].append((path, header, own))

    index = ["# Reference\n", "Every public name, by room and header. The search finds names.\n"]
    for room, found in rooms.items():
        title, what = ROOMS[room]
        page = room or "entry"
        lines = [f"# {title}\n", what + "\n"]
        for path, header, own in found:
            stem = path.removeprefix("zeropp/")
            link = f"[{stem}](/docs/reference/{stem}.md)"
            listed = ", ".join(f"`{name}`" for name in dict.fromkeys(name.name for name in own))
            lines.append(f"{link}\n: {markdown(header.brief(), public).split(chr(10) + chr(10))[0].strip()}\n"
                         + (f"\n  {listed}\n" if listed else ""))
            write_header(pages / f"{stem}.md", path, header, own, public, entries.get(path))
        lines.append(toctree(path.removeprefix("zeropp/") for path, _, _ in found))
        write(pages / f"{page}.md", lines)
        index.append(f"[{title}](/docs/reference/{page}.md)\n: {what}\n")
    index.append(toctree(room or "entry" for room in ROOMS))
    write(pages / "index.md", index)


def write_header(page, path, header, own, public, entry):
    title = path if path.count("/") == 1 else path.removeprefix("zeropp/")
    where = f", part of `<{entry}>`" if entry and entry != path else ""
    out = [f"# {title}\n", markdown(header.brief(), public), f"[`<{path}>`](/include/{path}){where}\n"]
    for name in dict.fromkeys(name.name for name in own):
        out += section([n for n in own if n.name == name], public)
    write(page, out)


def included_by(headers):
    """Each header's entry header: the first that includes it, directly or through others."""
    entries = {}
    for entry in ("zeropp.hpp", "mpi.hpp", "nccl.hpp", "checksummed.hpp", "cuda.cuh"):
        reached = [f"zeropp/{entry}"] if f"zeropp/{entry}" in headers else []
        for path in reached:
            found = re.findall(r"#include <(zeropp/[^>]*)>", headers[path].text)
            reached += [path for path in found if path in headers and path not in reached]
        for path in reached:
            entries.setdefault(path, reached[0])
    return entries


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
