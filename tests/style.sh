#!/usr/bin/env bash
# Holds the sources to the house's form, installing what is missing with apt-get. Some three minutes of processor time:
#
#   tests/style.sh [--build-dir DIR] [--no-tidy]
#
#   --build-dir DIR   where files are written that include every header of the host's, and programs (default: build/style)
#   --no-tidy         leave clang-tidy out, which takes nearly all of the time
#
#   clang-format 23   every C++ and CUDA file is as it leaves it: another version breaks lines elsewhere. From PyPI
#   columns           no line of these files, comments too, is wider than 120
#   words             comments name things: no "what", "whose", "those of" and the like, by the contributing guide
#   scripts           shellcheck of every shell script, by .shellcheckrc
#   clang-tidy 19     .clang-tidy's checks, of every header of the host's and of the programs that use them: the examples,
#                     zeropp-plan, and the consumers of tests/package
#
# The length of headers is the include law's, and another test's.
# Exit status: 0 nothing found, 1 something is, 2 something to run this is missing, 77 the tools cannot be had here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
folder build_dir "$root/build/style"
flag no_tidy
parse_options "$@"
cd "$root"

tools=(python3-venv shellcheck)
[ "$no_tidy" = yes ] || tools+=(clang-tidy-19 cmake libopenmpi-dev nlohmann-json3-dev libcli11-dev libxxhash-dev)
for tool in "${tools[@]}"; do
    # A machine that has never seen apt-get update knows of no package.
    if command -v apt-cache >/dev/null && ! require_packages_installed "$tool" && require_packages_may_install; then
        require_packages_update
    fi
    if command -v apt-cache >/dev/null && ! require_packages_installed "$tool" &&
        [ -z "$(apt-cache madison "$tool" 2>/dev/null)" ]; then
        echo "$tool cannot be had here"
        exit 77
    fi
done
require_packages "${tools[@]}"
clang_format=$build_dir/venv/bin/clang-format
if [ ! -x "$clang_format" ]; then
    rm -rf "$build_dir/venv"
    python3 -m venv "$build_dir/venv"
    "$build_dir/venv/bin/pip" install --quiet clang-format==23.1.5 || {
        echo "clang-format cannot be had here"
        exit 77
    }
fi

files() { # PATTERN...
    git ls-files --cached --others --exclude-standard -- "$@"
}
mapfile -t sources < <(files '*.cpp' '*.hpp' '*.cu' '*.cuh' '*.h' '*.c')
mapfile -t scripts < <(files '*.sh' .ci/run)
if [ ${#sources[@]} -eq 0 ] || [ ${#scripts[@]} -eq 0 ]; then
    echo "style: needs git and its repository, to know which files are ours" >&2
    exit 2
fi
failed=no
wrong() {
    echo "style: $1" >&2
    failed=yes
}

echo "== clang-format: ${#sources[@]} files"
"$clang_format" --dry-run -Werror "${sources[@]}" || wrong "clang-format 23 would change these files: $clang_format -i"

echo "== columns"
wide=$(grep -HnE '^.{121}' "${sources[@]}" || true)
[ -z "$wide" ] || wrong "wider than 120 columns:"$'\n'"$wide"

echo "== words"
# Relative clauses in place of a noun. Backquoted names may be called so.
# shellcheck disable=SC2016  # backquotes of comments
riddles=$(files 'include/*.hpp' 'include/*.cuh' 'examples/*.cpp' 'examples/*.cu' 'examples/zero3_gpt/*.hpp' \
    'examples/zero3_gpt/*.cpp' 'examples/plan/*' 'examples/c/*.cpp' 'examples/c/*.hpp' 'bench/*.hpp' 'bench/*.cpp' 'tests/support/*pp' 'tests/conformance/*' | xargs grep -Hno '//.*' |
    sed 's/`[^`]*`//g' |
    grep -E '\b([Ww]hat|[Ww]hose|[Ll]ikewise|[Ss]o many|but for|[Tt]hose of|[Aa]s above)\b' || true)
[ -z "$riddles" ] || wrong "comments that name no noun (.github/CONTRIBUTING.md, English):"$'\n'"$riddles"

echo "== shellcheck: ${#scripts[@]} scripts"
shellcheck "${scripts[@]}" || wrong "shellcheck finds fault with scripts"

if [ "$no_tidy" = no ]; then
    every=$build_dir/every_header.cpp
    # Those of vendors whose headers a machine without a GPU does not have, and what they alone include, are nvcc's.
    files 'include/zeropp/*.hpp' | sed -n '/cuda\|nccl\|staged/d;s/^include\/\(.*\)/#include <\1>/p' >"$every"
    mapfile -t programs < <(files 'examples/[0-9]*.cpp' 'examples/plan/*.cpp' 'tests/package/*.cpp')
    echo "== clang-tidy: ${#programs[@]} programs, and $(wc -l <"$every") headers"
    read -r -a mpi_flags <<<"$(mpicxx --showme:compile)"
    # Programs of one file share a translation unit, each in a namespace: their headers and templates are looked at once.
    mapfile -t single < <(printf "$root/%s\n" "${programs[@]}" | grep -v /plan/)
    mapfile -t plan < <(printf '%s\n' "${programs[@]}" | grep /plan/)
    together=$build_dir/every_program.cpp
    cmake -D "OUTPUT=$together" -D "SOURCES=$(IFS=';' && echo "${single[*]}")" -P cmake/zeropp_group_sources.cmake
    # Each by a process of its own, two at a time at most: they take a gigabyte each.
    printf '%s\n' "$together" "$every" "${plan[@]}" | xargs -P "$(($(nproc) > 2 ? 2 : $(nproc)))" -I {} \
        clang-tidy-19 --quiet --config-file=.clang-tidy --checks=-bugprone-suspicious-include {} -- -std=c++20 \
        -I "$root/include" "${mpi_flags[@]}" \
        2> >(grep -v ' warnings generated\|^Suppressed\|^Use -header-filter' >&2) || wrong "clang-tidy finds fault"
fi

[ $failed = no ] || exit 1
echo "style: nothing found"
