#!/usr/bin/env bash
# Builds the documentation site on a bare Debian or Ubuntu machine, installing what is missing:
#
#   docs/build.sh [--build-dir DIR] [--output DIR] [--repository-url URL]
#
#   --build-dir DIR        where to build (default: build/docs)
#   --output DIR           where the site goes (default: html/ in the build folder)
#   --repository-url URL   where the repository is published: links to its files lead there, as on GitHub. Without it
#                          the site has a page for each of those files
#
# The site is Sphinx's of the pages in docs/ and bench/results/, and of a reference made from the headers. Python's
# packages go into the build folder; once they are there, nothing needs a network. What fails the build:
#
#   docs/reference.py   a public name without a comment
#   docs/figures.py     a recording of messages that no picture fits
#   docs/examples.py    C++ in docs/programs that does not compile, or in a page that is no part of anything compiled
#   docs/stage.py       a link to a file that the repository does not have
#   Sphinx              a link to a page or heading that is not there, a page in no table of contents, and all else that
#                       it warns of
#
# All five run, whichever fails. The folder of the site is emptied: it must be empty, or have been built by this.
# Exit status: 0 built, 1 a check failed, 2 something to build it with is missing, 77 it cannot be had here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
folder build_dir "$root/build/docs"
value output ''
value repository_url ''
parse_options "$@"
output=${output:-$build_dir/html}
mkdir -p "$output"
output=$(cd "$output" && pwd)
if [ -n "$(ls -A "$output")" ] && [ ! -e "$output/.buildinfo" ]; then
    options_wrong "--output needs a folder that is empty or has been built by this, not: $output"
fi

require_packages doxygen g++ python3
# Older ones know no concepts, and have not been tried.
if ! doxygen_version=$(doxygen --version 2>/dev/null) ||
    [ "$(printf '1.9.4\n%s\n' "$doxygen_version" | sort -V | head -n 1)" != 1.9.4 ]; then
    echo "Doxygen 1.9.4 or newer is needed; here is: ${doxygen_version:-none}" >&2
    exit 2
fi
if ! cmp -s "$root/docs/requirements.txt" "$build_dir/venv/requirements.txt" ||
    ! "$build_dir/venv/bin/python" -c 'import sphinx' 2>/dev/null; then
    echo "== installing Sphinx"
    python3 -c 'import ensurepip' 2>/dev/null || require_packages python3-venv
    python3 -m venv --clear "$build_dir/venv"
    "$build_dir/venv/bin/pip" install --quiet --disable-pip-version-check -r "$root/docs/requirements.txt" || {
        echo "Sphinx cannot be installed here"
        exit 77
    }
    cp "$root/docs/requirements.txt" "$build_dir/venv/"
fi

export ZEROPP_ROOT=$root PYTHONDONTWRITEBYTECODE=1
failed=0
check() { "$@" || failed=1; }
draw_figures() {
    g++ -std=c++20 -I "$root/include" "$root/docs/programs/messages.cpp" -pthread -o "$build_dir/messages" &&
        "$build_dir/messages" | python3 "$root/docs/figures.py" "$stage/figures"
}

# From nothing each time, so that a page that is gone is gone from the site too.
stage=$build_dir/pages
rm -rf "$stage" "$build_dir/xml" "${output:?}"
mkdir -p "$stage" "$output"

echo "== examples"
check python3 "$root/docs/examples.py" "$root"

echo "== reference"
{
    cat "$root/docs/Doxyfile"
    echo "OUTPUT_DIRECTORY = \"$build_dir\""
} >"$build_dir/Doxyfile"
check env -C "$root/include" doxygen "$build_dir/Doxyfile"
check python3 "$root/docs/reference.py" "$build_dir/xml" "$root/include/zeropp" "$stage/reference"

# The test of this script has a repository without pictures.
if [ -e "$root/docs/programs/messages.cpp" ]; then
    echo "== figures"
    check draw_figures
fi

echo "== pages"
check python3 "$root/docs/stage.py" "$root" "$stage" "$repository_url"
check "$build_dir/venv/bin/sphinx-build" -q -W --keep-going -n -j auto -d "$build_dir/doctrees" "$stage" "$output"

[ $failed -eq 0 ] || exit 1
echo "site: $output/index.html"
