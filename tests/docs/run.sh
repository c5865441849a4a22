#!/usr/bin/env bash
# Builds the documentation site, and sees its checks fail: faults are planted in a small repository of its own, one at a
# time, each of which docs/build.sh has to find.
#
#   tests/docs/run.sh [--build-dir DIR]
#
#   --build-dir DIR   where to build (default: build/docs, which docs/build.sh uses too)
#
# Exit status: 0 the site is built and every fault was found, 1 otherwise, 77 what it needs cannot be had here.
# shellcheck disable=SC2016  # backquotes are of Markdown
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
folder build_dir "$root/build/docs"
parse_options "$@"

"$root/docs/build.sh" --build-dir "$build_dir"

echo "== planted faults"
small=$build_dir/planted
failed=0

# A repository of one header, one page and one program, with the site's own machinery, and Sphinx from above.
plant_nothing() {
    rm -rf "$small"
    mkdir -p "$small"/{cmake,docs/programs,include/zeropp/core,bench/results,build/docs}
    cp "$root/cmake/script.sh" "$small/cmake/"
    cp -r "$root"/docs/{build.sh,Doxyfile,requirements.txt,style} "$root"/docs/*.py "$small/docs/"
    cp "$root/include/zeropp/version.hpp" "$small/include/zeropp/"
    cp "$root/include/zeropp/core/error.hpp" "$small/include/zeropp/core/"
    ln -s "$build_dir/venv" "$small/build/docs/venv"
    printf '# Readme\n\n[Page](docs/page.md#heading)\n' >"$small/README.md"
    printf '# Results\n' | tee "$small/bench/results/README.md" >"$small/bench/results/other.md"
    printf '# Index\n\n```{toctree}\npage\nreference/index\nresults/README\n```\n' >"$small/docs/index.md"
    printf '# Page\n\n## Heading\n\n[Program](programs/program.cpp), [header](../include/zeropp/version.hpp)\n' \
        >"$small/docs/page.md"
    printf '#include <zeropp/version.hpp>\n\nint main() {\n    return 0 * zeropp::version_major;\n}\n' \
        >"$small/docs/programs/program.cpp"
    printf '\n```cpp\nreturn 0\n    * zeropp::version_major;  // 0\n```\n' >>"$small/docs/page.md"
}

# expect NAME TEXT: the build ends with 1 and says TEXT; or with 0, where there is no TEXT.
expect() {
    local name=$1 text=$2 wanted=0 result=0
    [ -z "$text" ] || wanted=1
    "$small/docs/build.sh" >"$small/log" 2>&1 || result=$?
    if [ $result -eq $wanted ] && grep -qF -- "$text" "$small/log"; then
        echo "found: $name"
    else
        echo "NOT FOUND: $name; the build ended with $result, and said:"
        cat "$small/log"
        failed=1
    fi
}

# planted NAME FILE LINE TEXT: with LINE at the end of FILE, the build says TEXT.
planted() {
    plant_nothing
    printf '%b\n' "$3" >>"$small/$2"
    expect "$1" "$4"
}

plant_nothing
expect "no fault" ""
planted "a function without a comment" include/zeropp/version.hpp \
    '\nnamespace zeropp {\n\ninline int planted() { return 1; }\n}' "the function planted has no comment"
planted "a concept without a comment" include/zeropp/version.hpp \
    '\nnamespace zeropp {\n\ntemplate <class T>\nconcept planted = sizeof(T) == 1;\n}' \
    "the concept planted has no comment"
planted "a member without a comment" include/zeropp/version.hpp \
    '\nnamespace zeropp {\n\n/// Has one.\nstruct has {\n    /// One.\n    int one();\n\n    int planted();\n};\n}' \
    "the function has::planted has no comment"
planted "a macro without a comment" include/zeropp/version.hpp '\n#define ZEROPP_PLANTED 1' \
    "the macro ZEROPP_PLANTED has no comment"
planted "a link to a file that is not there" docs/page.md '\n[x](../include/zeropp/planted.hpp)' \
    "docs/page.md:12: the repository has no ../include/zeropp/planted.hpp"
planted "a link to a page that is not there" README.md '\n[x](docs/planted.md)' \
    "README.md:5: the repository has no docs/planted.md"
planted "a link to a heading that is not there" docs/page.md '\n[x](index.md#planted)' \
    "local id not found in doc 'index': 'planted'"
planted "a picture that is not there" docs/page.md '\n![x](planted.svg)' "the repository has no planted.svg"
planted "a file to show that is not there" docs/page.md '\n```{literalinclude} programs/planted.cpp\n```' \
    "the repository has no programs/planted.cpp"
planted "a page that nothing leads to" docs/planted.md '# Planted' "isn't included in any toctree"
planted "a program that does not compile" docs/programs/planted.cpp 'int main() { return planted; }' \
    "docs/programs/planted.cpp does not compile"
planted "a program in a page that does not compile" docs/page.md '\n```cpp\nint main() { return planted; }\n```' \
    "docs/page.md:13 does not compile"
planted "a piece of no program" docs/page.md '\n```cpp\nreturn zeropp::planted;\n```' \
    "docs/page.md:13: this C++ is neither a program nor a piece"

[ $failed -eq 0 ] || exit 1
echo "every planted fault was found"
