#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# epx_f08 has what epx.h has, compiles without a warning, and works on 2 ranks: fortran.F90.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
header=$srcdir/include/epx.h
module=$srcdir/fortran/epx_f08.F90
name=check_fortran
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"

check_constants() {
    sed -n 's/^#define \(EPX_[A-Z0-9_]*\) \([0-9][0-9]*\).*/\1 = \2/p' "$header" |
        sort >"$work/header"
    sed -n 's/.*parameter, public :: \(EPX_[A-Z0-9_]* = [0-9]*\)$/\1/p' "$module" |
        sort >"$work/module"
    [ -s "$work/header" ] || die "no constants found in epx.h"
    diff "$work/header" "$work/module" >&2 || die "constants of epx.h (<) and epx_f08 (>) differ"
}

check_functions() {
    sed -n 's/^int \(EPX_[A-Za-z_]*\)(.*/\1/p' "$header" | sort >"$work/header"
    sed -n 's/^  subroutine \(EPX_[A-Za-z_]*\)(.*/\1/p' "$module" | sort >"$work/module"
    diff "$work/header" "$work/module" >&2 || die "functions of epx.h (<) and epx_f08 (>) differ"
}

# build_and_run KIND FLAGS... - in a folder of its own: the compiler leaves the modules there.
build_and_run() {
    kind=$1
    shift
    mkdir "$work/$kind" && cd "$work/$kind" || exit 1
    # shellcheck disable=SC2086 # a list of words
    $MPIFC $fortran_warnings "$@" -c "$module" || die "epx_f08.F90 does not compile ($kind)"
    # Sums are to be exact.
    # shellcheck disable=SC2086
    $MPIFC $fortran_warnings ${fortran_warnings:+-Wno-compare-reals} "$@" \
        -c "$srcdir/tests/fortran/fortran.F90" ||
        die "the test does not compile ($kind)"
    # shellcheck disable=SC2086
    "$top_builddir/libtool" --silent --tag=CC --mode=link $MPIFC -o fortran fortran.o epx_f08.o \
        "$top_builddir/libepx.la" || die "the test does not link ($kind)"
    # shellcheck disable=SC2086
    launch $MPIEXEC -n 2 ./fortran >printed 2>said || {
        cat printed said >&2
        die "the test fails ($kind)"
    }
    [ "$(tail -n 1 printed)" = " No Errors" ] || die "the test ended early ($kind)"
}

[ -f "$top_builddir/Makefile" ] || die "$top_builddir has no Makefile"
check_constants
check_functions

use_fortran
MPIEXEC=${MPIEXEC:-$(configured MPIEXEC)}
(build_and_run arrays) || exit 1
(build_and_run pointers -DEPX_F08_C_PTR) || exit 1
