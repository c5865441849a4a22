"""The public names of the library: what Doxygen finds in its headers, and what the headers say of it.

Doxygen says which names are public, what they are and in which line; declarations and comments are taken from the
headers as they stand there.
"""

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field


@dataclass
class Name:
    """A public name, its declaration as the header spells it, and the comment above it."""

    name: str
    kind: str
    header: str
    line: int
    member_of: str = ""
    start: int = 0
    text: str = ""
    comment: list = field(default_factory=list)
    members: list = field(default_factory=list)

    @property
    def anchor(self):
        return f"{self.member_of}::{self.name}" if self.member_of else self.name


class Header:
    """The lines of a header, and what is declared in them."""

    def __init__(self, path):
        self.text = path.read_text()
        self.lines = self.text.split("\n")
        self.offsets = [0]
        for line in self.lines:
            self.offsets.append(self.offsets[-1] + len(line) + 1)

    def brief(self):
        """The comment of the file."""
        at = self.lines.index("/// \\file") + 1
        return self.comment_from(at, +1)

    def comment_from(self, at, step):
        lines = []
        while 0 <= at < len(self.lines) and (match := re.match(r"\s*/// ?(.*)$", self.lines[at])):
            lines.append(match[1])
            at += step
        return lines[::step]

    def read(self, name):
        """Fills in the declaration and the comment of `name`."""
        start = name.line - 1
        while start > 0 and self.belongs_below(self.lines[start - 1]):
            start -= 1
        above = start
        if name.kind == "define":
            while self.lines[above - 1].startswith("#"):
                above -= 1
        indent = len(self.lines[start]) - len(self.lines[start].lstrip())
        begin = self.offsets[start]
        end = self.end_of(name.kind, begin)
        text = self.text[begin:end].rstrip()
        if not text.endswith(";") and name.kind != "define":
            text += ";"
        name.start = start
        name.text = readable("\n".join(line[indent:].rstrip() for line in text.split("\n")))
        name.comment = self.comment_from(above - 1, -1)

    @staticmethod
    def belongs_below(line):
        """Whether a line is the beginning of the declaration in the next: of a template, its requirements, its type."""
        code = re.sub(r"//.*$", "", line).rstrip()
        return bool(code) and not code.lstrip().startswith("#") and code[-1] not in ";{}:"

    def end_of(self, kind, at):
        """Where a declaration ends: behind its semicolon, or before the body of a function or class."""
        if kind == "define":
            return self.text.index("\n", at)
        depth = 0
        token = re.compile(r"//[^\n]*|\"(?:\\.|[^\"])*\"|'(?:\\.|[^'])'|::|[()\[\]{};:?]")
        for match in token.finditer(self.text, at):
            sign, before = match[0], self.text[at : match.start()]
            if sign == "{" and depth == 0 and kind in ("function", "class", "struct"):
                clause = re.search(r"(\)|\bconst|\bnoexcept)\s*requires\s*\([^()]*\)\s*$", before)
                if clause or not re.search(r"\brequires\s*(\([^()]*\))?\s*$", before):
                    return match.start()
            if sign == ":" and depth == 0 and kind == "function" and before.rstrip().endswith((")", ">", "noexcept")):
                return match.start()
            if sign in "([{":
                depth += 1
            elif sign in ")]}":
                depth -= 1
            elif sign == ";" and depth == 0:
                return match.end()
        raise SystemExit(f"no end of the declaration at {self.text[at:at + 80]!r}")


def readable(text):
    """A declaration without attributes of compilers."""
    return re.sub(r"\[\[gnu::[^\]]*\]\]\s*", "", text)


def public_names(xml):
    """Every public name that Doxygen has found, classes with their members."""
    names, members = {}, []
    for path in sorted(xml.glob("*.xml")):
        for compound in ET.parse(path).getroot().iter("compounddef"):
            kind, full = compound.get("kind"), compound.findtext("compoundname")
            if kind not in ("namespace", "class", "struct", "union", "concept", "file") or "detail" in full.split("::"):
                continue
            place = compound.find("location")
            if kind in ("class", "struct", "union", "concept"):
                if "<" in full or compound.get("prot") == "private":
                    continue
                scope, name = full.removeprefix("zeropp::").rpartition("::")[::2]
                entry = Name(name, kind, place.get("file"), int(place.get("line")), scope)
                names[entry.anchor] = names.get(entry.anchor, []) + [entry]
            for member in compound.iter("memberdef"):
                entry = member_name(member, kind, full)
                if entry:
                    members.append(entry)
    for entry in members:
        if not entry.member_of:
            names[entry.name] = names.get(entry.name, []) + [entry]
    for entry in members + [n for group in names.values() for n in group if n.member_of]:
        if entry.member_of in names:
            names[entry.member_of][0].members.append(entry)
    return [entry for group in names.values() for entry in group if not entry.member_of]


def member_name(member, compound_kind, compound):
    kind, name, place = member.get("kind"), member.findtext("name"), member.find("location")
    if compound_kind == "file" and kind != "define":
        return None  # its namespace lists it
    if kind == "friend" or member.get("prot") == "private" or "<" in name.split("operator")[0]:
        return None
    if "DETAIL" in name or not place.get("file").startswith("zeropp/"):
        return None
    scope = "" if compound_kind in ("namespace", "file") else compound.removeprefix("zeropp::")
    return Name(name, kind, place.get("file"), int(place.get("line")), scope)


def share_comments(names, header):
    """Gives what has no comment the comment of what is above it, where it follows without a blank line."""
    for before, name in zip(names, names[1:]):
        between = header.lines[before.start : name.start]
        if not name.comment and all(line and not re.match(r"\s*(public|protected|private):", line) for line in between):
            name.comment = before.comment


def speaks_for_itself(member, owner, spelt, header):
    """Whether a member needs no comment of its own."""
    name = member.name
    if member.kind != "function" and all(header.lines[owner.start : member.start]):
        return True  # the fields under the head of a class are what its comment is about
    if name in (owner.name, "~" + owner.name) or name.startswith("operator"):
        return True
    return name in spelt or re.search(rf"\b{re.escape(name)}\b", "\n".join(owner.comment))


def spelt_by_concepts(names):
    """The members that concepts ask for, in their requirements or in their comments."""
    spelt = set()
    for concept in (name for name in names if name.kind == "concept"):
        spelt |= set(re.findall(r"(?:\.|::)(\w+)", concept.text))
        for code in re.findall(r"`([^`]*)`", "\n".join(concept.comment)):
            spelt |= set(re.findall(r"\w+", code))
    return spelt


def read(xml, folder):
    """All public names and all headers, by their paths from the folder above."""
    names = sorted(public_names(xml), key=lambda name: (name.header, name.line))
    headers = {f"zeropp/{path.relative_to(folder)}": Header(path) for path in sorted(folder.rglob("*.[hc]*"))}
    for scope in [names] + [name.members for name in names]:
        scope.sort(key=lambda name: (name.header, name.line))
        for name in scope:
            headers[name.header].read(name)
        for header in dict.fromkeys(name.header for name in scope):
            share_comments([name for name in scope if name.header == header], headers[header])
    return names, headers


def without_comment(names, headers):
    """The names and members that nothing explains."""
    spelt = spelt_by_concepts(names)
    documented = {name.name for name in names if name.comment}
    missing = [name for name in names if name.name not in documented]
    for owner in names:
        said = {member.name for member in owner.members if member.comment}
        for member in owner.members:
            if member.name not in said and not speaks_for_itself(member, owner, spelt, headers[member.header]):
                missing.append(member)
    return sorted(missing, key=lambda name: (name.header, name.line))
