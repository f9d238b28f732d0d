#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The first program of the README is examples/first.c, compiles without a warning, and prints what
# the README says.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
readme=$srcdir/README.md
program=$srcdir/examples/first.c
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

die() {
    echo "lint_readme: $*" >&2
    exit 1
}

# The first block of a language in the README.
block() {
    awk -v fence="\`\`\`$1" '/^```/ && on { exit } on { print } $0 == fence { on = 1 }' "$readme"
}

configured() {
    sed -n "s/^$1 = //p" "$top_builddir/Makefile"
}

# A launcher that refuses root or more ranks than cores is told not to.
launch() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
        OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 \
        OMPI_MCA_hwloc_base_binding_policy=none timeout 120 "$@"
}

block c >"$work/first.c"
block text >"$work/expected"
[ -s "$work/first.c" ] || die "no C program in $readme"
[ -s "$work/expected" ] || die "$readme does not say what the program prints"
diff "$work/first.c" "$program" >&2 || die "README.md (<) and examples/first.c (>) differ"

[ -f "$top_builddir/Makefile" ] || die "$top_builddir has no Makefile"
[ -f "$top_builddir/libepx.la" ] || die "libepx.la is not built"
CC=${CC:-$(configured CC)}
MPIEXEC=${MPIEXEC:-$(configured MPIEXEC)}
mpi_cflags=$(configured MPI_CFLAGS | sed 's/-I */-isystem /g')
mpi_libs=$(configured MPI_LIBS)
cflags=$(configured CFLAGS)

# shellcheck disable=SC2086 # lists of words
$CC -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$srcdir/include" $mpi_cflags $cflags \
    -c -o "$work/first.o" "$program" || die "the program does not compile"
# shellcheck disable=SC2086
"$top_builddir/libtool" --silent --tag=CC --mode=link $CC $cflags -o "$work/first" \
    "$work/first.o" "$top_builddir/libepx.la" $mpi_libs || die "the program does not link"
# shellcheck disable=SC2086 # the launcher may have arguments
launch $MPIEXEC -n 2 "$work/first" >"$work/printed" || die "the program fails on 2 ranks"
cat "$work/expected" "$work/expected" | sort >"$work/sorted"
sort "$work/printed" | diff "$work/sorted" - >&2 ||
    die "twice what the README says (<) and what 2 ranks print (>) differ"
