#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# libepx.so exports the functions of epx.h, all of them and nothing else.
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

NM=${NM:-$(sed -n 's/^NM = //p' "$top_builddir/Makefile")}
${NM:-nm} -D --defined-only "$library" | awk '{ sub(/@.*/, "", $NF); print $NF }' |
    sort -u >"$work/exported"
sed -n 's/^int \(EPX_[A-Za-z_]*\)(.*/\1/p' "$srcdir/include/epx.h" | sort >"$work/declared"
if [ ! -s "$work/declared" ]; then
    echo "lint_exports: no functions found in epx.h" >&2
    exit 1
fi
diff "$work/declared" "$work/exported" >&2 && exit 0
echo "lint_exports: epx.h (<) and libepx.so (>) differ" >&2
exit 1
