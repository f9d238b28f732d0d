#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# epx_f08 has what epx.h has, compiles without a warning, and works on 2 ranks: fortran.F90.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
header=$srcdir/include/epx.h
module=$srcdir/fortran/epx_f08.F90
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

die() {
    echo "check_fortran: $*" >&2
    exit 1
}

skip() {
    echo "check_fortran: skipped, $*"
    exit 77
}

# The value of a variable of the Makefile.
configured() {
    sed -n "s/^$1 = //p" "$top_builddir/Makefile"
}

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

launch() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
        OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 \
        OMPI_MCA_hwloc_base_binding_policy=none timeout 120 "$@"
}

# build_and_run NAME FLAGS... - in a folder of its own: the compiler leaves the modules there.
build_and_run() {
    name=$1
    shift
    mkdir "$work/$name" && cd "$work/$name" || exit 1
    # shellcheck disable=SC2086 # a list of words
    $MPIFC $warnings "$@" -c "$module" || die "epx_f08.F90 does not compile ($name)"
    # Sums are to be exact.
    # shellcheck disable=SC2086
    $MPIFC $warnings ${warnings:+-Wno-compare-reals} "$@" -c "$srcdir/tests/fortran/fortran.F90" ||
        die "the test does not compile ($name)"
    # shellcheck disable=SC2086
    "$top_builddir/libtool" --silent --tag=CC --mode=link $MPIFC -o fortran fortran.o epx_f08.o \
        "$top_builddir/libepx.la" || die "the test does not link ($name)"
    # shellcheck disable=SC2086
    launch $MPIEXEC -n 2 ./fortran >printed 2>said || {
        cat printed said >&2
        die "the test fails ($name)"
    }
    [ "$(tail -n 1 printed)" = " No Errors" ] || die "the test ended early ($name)"
}

[ -f "$top_builddir/Makefile" ] || die "$top_builddir has no Makefile"
check_constants
check_functions

MPIFC=$(configured MPIFC)
MPIEXEC=${MPIEXEC:-$(configured MPIEXEC)}
[ -n "$MPIFC" ] || skip "configure found no Fortran compiler wrapper of MPI"
printf 'use mpi_f08\ncall MPI_Init()\ncall MPI_Finalize()\nend\n' >"$work/try.f90"
(cd "$work" && $MPIFC -o try try.f90) >"$work/said" 2>&1 ||
    skip "$MPIFC does not build a program that uses mpi_f08"
warnings=
case $($MPIFC --version 2>/dev/null) in *"GNU Fortran"*)
    warnings="-std=f2018 -Wall -Wextra -Werror"
    ;;
esac
(build_and_run arrays) || exit 1
(build_and_run pointers -DEPX_F08_C_PTR) || exit 1
