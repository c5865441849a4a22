#!/usr/bin/env bash
# Breaks the interpreter on purpose, in each way that faults.cpp knows, and wants a program to see it:
#
#   mistakes.sh PROGRAM...
#
# Programs are tried in order until one fails. Exit status: 0 every mistake was seen, 1 one was not.
set -euo pipefail
failed=0
for mistake in rounding denormals division bfloat16 nan lop3 prmt shuffle mma barrier; do
    seen=
    for program in "$@"; do
        if ! PTX_MISTAKE=$mistake "$program" --abort >/dev/null 2>&1; then
            seen=$program
            break
        fi
    done
    printf '%-10s %s\n' "$mistake" "${seen:-NOT SEEN}"
    [ -n "$seen" ] || failed=1
done
exit $failed
