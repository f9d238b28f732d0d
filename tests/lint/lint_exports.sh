#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# libepx.so exports the functions of epx.h, EPX_X weak beside PEPX_X, and what the Fortran module
# calls: all of them and nothing else.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
library=$top_builddir/.libs/libepx.so
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

if grep -q "^dlname=''" "$top_builddir/libepx.la" 2>/dev/null; then
    echo "lint_exports: skipped, the library is not built as a shared one"
    exit 77
fi
if [ ! -f "$library" ]; then
    echo "lint_exports: $library is not built" >&2
    exit 1
fi

# The value of a variable of the Makefile.
configured() {
    sed -n "s/^$1 = //p" "$top_builddir/Makefile"
}

# Prototypes of epx.h whose function's name starts with this, one a line without white space.
prototypes() {
    awk -v start="^int $1" '$0 ~ start { on = 1 } on { printf "%s", $0 }
        on && /;/ { print ""; on = 0 }' "$srcdir/include/epx.h" | tr -d ' \t'
}

NM=${NM:-$(configured NM)}
${NM:-nm} -D --defined-only "$library" | awk '{ sub(/@.*/, "", $NF); print $NF, $(NF - 1) }' |
    sort -u >"$work/symbols"
cut -d ' ' -f 1 "$work/symbols" >"$work/exported"

prototypes EPX_ >"$work/functions"
prototypes PEPX_ | sed 's/^intP/int/' >"$work/profiled"
if [ ! -s "$work/functions" ]; then
    echo "lint_exports: no functions found in epx.h" >&2
    exit 1
fi
diff "$work/functions" "$work/profiled" >&2 || {
    echo "lint_exports: EPX_* (<) and PEPX_* (>) of epx.h differ" >&2
    exit 1
}

sed 's/^int\(EPX_[A-Za-z_]*\)(.*/\1/' "$work/functions" >"$work/names"
{
    cat "$work/names"
    [ "$(configured EPX_PROFILING)" = no ] || sed 's/^/P/' "$work/names"
    sed -n 's/.*bind(C, name="\(epx_f08_[a-z_]*\)").*/\1/p' "$srcdir/fortran/epx_f08.F90"
} | sort >"$work/declared"
diff "$work/declared" "$work/exported" >&2 || {
    echo "lint_exports: epx.h with epx_f08 (<) and libepx.so (>) differ" >&2
    exit 1
}
[ "$(configured EPX_PROFILING)" = no ] ||
    ! grep '^EPX_.* [^W]$' "$work/symbols" >&2 || {
    echo "lint_exports: a tool cannot take the place of what is not weak" >&2
    exit 1
}
