#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The Fortran synopses of the pages, as printed, are those of the module epx_f08: the compiler
# compares them, see synopsis.awk. Every subroutine of the module has one.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
name=check_synopsis
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"
module=$srcdir/fortran/epx_f08.F90

printed() {
    if command -v mandoc >/dev/null 2>&1; then
        mandoc -Tascii "$1"
    else
        groff -t -man -Tascii -P-c "$1"
    fi | sed "s/.$(printf '\b')//g"
}

command -v mandoc >/dev/null 2>&1 || command -v groff >/dev/null 2>&1 ||
    skip "there is neither mandoc nor groff"
[ -f "$top_builddir/Makefile" ] || die "$top_builddir has no Makefile"
for page in "$srcdir"/man/*.3; do
    printed "$page" >"$work/$(basename "$page").txt" || die "$page cannot be printed"
done
awk -v found="$work/found" -f "$srcdir/tests/pages/synopsis.awk" "$work"/*.3.txt \
    >"$work/synopsis.f90" || die "the synopses cannot be taken out"
sort "$work/found" >"$work/printed"
sed -n 's/^  subroutine \(EPX_[A-Za-z_]*\)(.*/\1/p' "$module" | sort >"$work/defined"
[ -s "$work/defined" ] || die "no subroutines found in epx_f08.F90"
diff "$work/printed" "$work/defined" >&2 ||
    die "subroutines of the pages (<) and of epx_f08 (>) differ"

use_fortran
# shellcheck disable=SC2086 # a list of words
(cd "$work" && $MPIFC $fortran_warnings -c "$module") || die "epx_f08.F90 does not compile"
(cd "$work" && $MPIFC -c synopsis.f90) ||
    die "the synopses of the pages are not those of epx_f08"
echo "check_synopsis: $(wc -l <"$work/printed") subroutines are printed as they are"
