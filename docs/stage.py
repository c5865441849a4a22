#!/usr/bin/env python3
"""Makes Sphinx's source folder, and fails where a page links to a file that the repository does not have.

    docs/stage.py REPOSITORY STAGE [URL]

Pages are written for GitHub: a link is the path of a file of the repository, from the page, or from the top where it
begins with a slash. Here it becomes that of a page of the site:

    docs/X.md             X
    bench/results/X.md    results/X; all of them are in the site
    another .md           repository/PATH, as a page; README.md is always there
    a folder              its README.md, or a page that lists what is in it
    another file          a page with its text; pictures are copied
                          or, where URL says where the repository is published, that address
    docs/figures/X.svg    figures/X.svg, which docs/figures.py has drawn in STAGE

Files that are here and not in git, as a new page is at first, are in the site too, and named.

STAGE/reference holds the pages of docs/reference.py already, and STAGE/figures the pictures of docs/figures.py. Sphinx
then checks what leads from page to page.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

LANGUAGES = {".hpp": "cpp", ".cuh": "cuda", ".cu": "cuda", ".cpp": "cpp", ".py": "python", ".sh": "bash",
             ".json": "json", ".cmake": "cmake", ".txt": "text", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml"}
PICTURES = {".png", ".svg", ".jpg"}
BUILD = {"build", ".git", "__pycache__"}
HIDDEN = "---\norphan: true\nnosearch: true\n---\n\n"


class Stage:
    def __init__(self, repository, stage, url):
        self.repository, self.stage, self.url = repository, stage, url
        self.done, self.wanted, self.broken = set(), [], []

    def make(self):
        docs = self.repository / "docs"
        pages = sorted(docs.rglob("*.md")) + sorted((self.repository / "bench/results").glob("*.md"))
        for page in [*pages, self.repository / "README.md"]:
            self.want(page)
        for page in sorted((self.stage / "reference").rglob("*.md")):
            self.put(page, self.linked(docs / page.relative_to(self.stage), page.read_text()))
        while self.wanted:
            self.write(self.wanted.pop(0))
        shutil.copytree(docs / "style", self.stage / "style", dirs_exist_ok=True)
        shutil.copy(docs / "conf.py", self.stage)

    def unknown_to_git(self):
        """The files in the site that a checkout has and git does not."""
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=self.repository, capture_output=True, text=True) \
            if (self.repository / ".git").exists() and shutil.which("git") else None
        if listed is None or listed.returncode != 0:
            return []
        files = {str(path.relative_to(self.repository)) for path in self.done if path.is_file()}
        return sorted(files - set(listed.stdout.split("\0")))

    def place(self, path):
        """Where in the stage a file or folder of the repository is."""
        path = path.relative_to(self.repository)
        for top, ours in (("docs", ""), ("bench/results", "results")):
            if path.is_relative_to(top):
                return self.stage / ours / path.relative_to(top)
        return self.stage / "repository" / path

    def page(self, path):
        """The page that shows a file or folder of the repository."""
        if path.is_dir():
            readme = path / "README.md"
            return self.page(readme) if readme.exists() else self.place(path) / "index.md"
        place = self.place(path)
        return place if path.suffix in PICTURES | {".md"} else place.with_name(place.name + ".md")

    def want(self, path):
        if path.is_dir() and (path / "README.md").exists():
            path = path / "README.md"
        if path not in self.done:
            self.done.add(path)
            self.wanted.append(path)

    def write(self, path):
        if path.suffix in PICTURES:
            self.put(self.page(path), None, path)
        elif path.suffix == ".md":
            text = self.linked(path, path.read_text())
            if not text.startswith("# "):
                text = f"# {path.stem.replace('_', ' ').capitalize()}\n\n{text}"
            if path == self.repository / "bench/results/README.md":
                text += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
            top = self.page(path).relative_to(self.stage).parts[0]
            self.put(self.page(path), (HIDDEN if top == "repository" else "") + text)
        else:
            text = self.linked(path / "-", self.listing(path)) if path.is_dir() else self.source(path)
            self.put(self.page(path), text)

    def put(self, place, text, copy=None):
        place.parent.mkdir(parents=True, exist_ok=True)
        if copy:
            shutil.copy(copy, place)
        else:
            place.write_text(text)

    def listing(self, folder):
        entries = sorted(entry for entry in folder.iterdir() if entry.name not in BUILD)
        lines = [f"- [{entry.name}{'/' * entry.is_dir()}]({entry.name})" for entry in entries]
        return "\n".join([f"{HIDDEN}# {folder.relative_to(self.repository)}/\n", *lines, ""])

    def source(self, path):
        language = LANGUAGES.get(path.suffix, "cmake" if path.name == "CMakeLists.txt" else "text")
        place = self.place(path)
        self.put(place, None, path)
        return (f"{HIDDEN}# {path.relative_to(self.repository)}\n\n"
                f"```{{literalinclude}} {place.name}\n:language: {language}\n:linenos:\n```\n")

    def linked(self, page, text):
        """The text of a page with its links as the site has them. Code has none, but files that it includes."""
        lines, fences = text.split("\n"), []  # of each that is open, its mark, and whether it is code
        for number, line in enumerate(lines, 1):
            mark = re.match(r" *(`{3,}|~{3,}|:{3,})(.*)", line)
            include = re.match(r" *[`:]{3,}\{(literalinclude|include|image|figure)\} +(\S+)", line)

            def site(match, what=include):
                return match[1] + self.link(page, number, match[2], bool(what)) + match[3]

            if mark and fences and not mark[2].strip() and mark[1].startswith(fences[-1][0]):
                fences.pop()
            elif not fences or not fences[-1][1]:
                if include:
                    line = re.sub(r"(\} +)(\S+)()", site, line)
                parts = re.split(r"(`+[^`]*`+)", line)
                for i in range(0, len(parts), 2):
                    parts[i] = re.sub(r"(\]\()([^()\s]+)(\)|\s+\"[^\"]*\"\))", site, parts[i])
                    parts[i] = re.sub(r"(^\[[^\]]+\]: +)(\S+)()", site, parts[i])
                lines[number - 1] = "".join(parts)
                if mark:
                    words = re.match(r"\{(code|code-block|toctree|raw)\}", mark[2])
                    fences.append((mark[1], bool(words) or not re.match(r" *\{", mark[2])))
        return "\n".join(lines)

    def link(self, page, number, link, included):
        """What a link of `page` is in the site."""
        name, hash_sign, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link) or not name:
            return link
        base = self.repository if name.startswith("/") else page.parent
        path = Path(os.path.normpath(base / name.lstrip("/")))
        generated = self.place(path) if path.is_relative_to(self.repository) else None
        if generated is None or not (path.exists() or (generated.suffix in {".md", ".svg"} and generated.exists())):
            where = page.relative_to(self.repository)
            self.broken.append(f"{where}:{number}: the repository has no {name}, to which this links")
            return link
        if included:
            if path.exists():
                self.put(generated, None, path)
            return "/" + str(self.place(path).relative_to(self.stage))
        if path.exists():
            ours = any(path.is_relative_to(self.repository / top) for top in ("docs", "bench/results"))
            if self.url and not ours:
                return f"{self.url}/{'tree' if path.is_dir() else 'blob'}/HEAD/{path.relative_to(self.repository)}" + \
                    hash_sign + anchor
            self.want(path)
            generated = self.page(path)
        return os.path.relpath(generated, self.page(page).parent) + hash_sign + anchor


def main(repository, stage, url=""):
    made = Stage(Path(repository).resolve(), Path(stage).resolve(), url.rstrip("/"))
    made.make()
    if made.broken:
        print("\n".join(made.broken), file=sys.stderr)
        raise SystemExit(f"docs/stage.py: {len(made.broken)} links lead to nothing")
    print(f"pages: {len(made.done)} of files of the repository, besides the reference")
    for path in made.unknown_to_git():
        print(f"pages: {path} is in the site and not in git")


if __name__ == "__main__":
    main(*sys.argv[1:])
