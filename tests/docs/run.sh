#!/usr/bin/env bash
# Builds the documentation site, and sees its checks fail: faults are planted in a small repository, those of one check at
# a time. docs/build.sh has to name each, and to end with 1.
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

# planted FILE LINE TEXT: LINE stands at the end of FILE, for which the build has to say TEXT.
planted() {
    printf '%b\n' "$2" >>"$small/$1"
    texts+=("$3")
}

# build NAME STATUS: the build ends with STATUS and says all that it has to. The next one begins without faults.
build() {
    local text result=0
    "$small/docs/build.sh" >"$small/log" 2>&1 || result=$?
    if [ $result -ne "$2" ]; then
        echo "$1: the build ended with $result, not with $2"
        failed=1
    fi
    for text in "${texts[@]}"; do
        if grep -qF -- "$text" "$small/log"; then
            echo "$1, found: $text"
        else
            echo "$1, NOT FOUND: $text"
            failed=1
        fi
    done
    [ $failed -eq 0 ] || cat "$small/log"
    texts=()
    plant_nothing
}

texts=()
plant_nothing
build "no fault" 0

planted include/zeropp/version.hpp '\nnamespace zeropp {\n\ninline int planted_function() { return 1; }\n}' \
    "the function planted_function has no comment"
planted include/zeropp/version.hpp \
    '\nnamespace zeropp {\n\ntemplate <class T>\nconcept planted_concept = sizeof(T) == 1;\n}' \
    "the concept planted_concept has no comment"
planted include/zeropp/version.hpp \
    '\nnamespace zeropp {\n\n/// Has one.\nstruct has {\n    /// One.\n    int one();\n\n    int planted();\n};\n}' \
    "the function has::planted has no comment"
planted include/zeropp/version.hpp '\n#define ZEROPP_PLANTED 1' "the macro ZEROPP_PLANTED has no comment"
build "reference" 1

planted README.md '\n[x](docs/planted.md)' "README.md:5: the repository has no docs/planted.md"
planted docs/page.md '\n[x](../include/zeropp/planted.hpp)' \
    "docs/page.md:12: the repository has no ../include/zeropp/planted.hpp"
planted docs/page.md '\n![x](planted.svg)' "docs/page.md:14: the repository has no planted.svg"
planted docs/page.md '\n```{literalinclude} programs/planted.cpp\n```' "the repository has no programs/planted.cpp"
build "links to files" 1

planted docs/page.md '\n[x](index.md#planted)' "local id not found in doc 'index': 'planted'"
planted docs/planted.md '# Planted' "isn't included in any toctree"
build "links to pages" 1

planted docs/programs/planted.cpp 'int main() { return planted; }' "docs/programs/planted.cpp does not compile"
planted docs/page.md '\n```cpp\nint main() { return absent; }\n```' "docs/page.md:13 does not compile"
planted docs/page.md '\n```cpp\nreturn zeropp::planted;\n```' \
    "docs/page.md:17: this C++ is neither a program nor a piece"
build "examples" 1

[ $failed -eq 0 ] || exit 1
echo "every planted fault was found"
