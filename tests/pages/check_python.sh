#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The programs of docs/python.md, blocks that begin with a line "# NAME.py", run as printed and
# print what the page says, on the ranks that it says; they also run when they are pasted into
# Python. Every other block of Python is well formed.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
name=check_python
page=$srcdir/docs/python.md
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"
# Python without buffers writes a line and its end one after the other, and mpiexec may put another
# rank's line between the two.
unset PYTHONUNBUFFERED

# Writes NAME.py for each program, NAME.shown for what is shown of it, other.N for other blocks of
# Python, and prints for each program: NAME RANKS.
take_blocks() {
    awk -v work="$1" '
        /^```/ && on { on = 0; close(file); next }
        /^```(python|text)$/ { on = $0; file = ""; next }
        !on { next }
        on ~ /text/ && !file {
            if (!match($0, /^\$ mpiexec -n [0-9]+ python [a-z_]+\.py$/)) { on = 0; next }
            file = work "/" $6 ".shown"
            print $6, $4
            next
        }
        !file { file = work "/" (/^# [a-z_]+\.py$/ ? $2 : "other." ++others) }
        { print >file }
    ' "$page"
}

run_program() {
    program=$1 ranks=$2
    module=epx.torch
    ! grep -q '^import jax' "$program" || module=epx.jax
    ! grep -q '^import numpy' "$program" || module=epx.numpy
    lacking=$("$PYTHON" -c "
try: import $module
except Exception as error: print(error)" 2>/dev/null)
    if [ "$lacking" ]; then
        echo "$name: $program is not run: $lacking"
        return
    fi
    # shellcheck disable=SC2086 # the launcher may have arguments
    launch $MPIEXEC -n "$ranks" "$PYTHON" "$program" >printed 2>told ||
        die "$program fails: $(cat told)"
    sort printed | diff "$program.shown" - >&2 ||
        die "what the page shows (<) and what $program prints (>) differ"
    launch "$PYTHON" -i -q <"$program" >printed 2>told || die "$program ends with an error"
    grep -q '^rank 0: ' printed || die "$program does not run when it is pasted: $(cat told)"
}

use_build
[ -f "$top_builddir/python/.libs/_glue.so" ] || skip "built without --enable-python"
[ -z "${SANITIZER:-}" ] || skip "Python itself is not checked"
PYTHON=${PYTHON:-$(configured PYTHON)}
export PYTHONPATH="$srcdir/python" PYTHON_EPX_GLUE="$top_builddir/python/.libs/_glue.so"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 EPX_MEMORY=system
cd "$work" || exit 1
take_blocks "$work" >programs
[ "$(wc -l <programs)" -ge 2 ] || die "$page has fewer than two programs"
for block in other.*; do
    "$PYTHON" -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$block" ||
        die "a block is no Python: $(cat "$block")"
done
while read -r program ranks <&3; do
    [ -s "$program" ] || die "no block of $page begins with \"# $program\""
    run_program "$program" "$ranks"
done 3<programs
