#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The programs of examples/start/, whose ranks MPI does not start, compile without a warning and are
# not linked with MPI; their ranks find each other.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
name=check_start
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"
use_build

# build NAME - as build_program does, without the libraries of MPI.
build() {
    compile "$srcdir/examples/start/$1.c" "$work/$1.o" -D_XOPEN_SOURCE=700 \
        -I"$srcdir/include" || die "$1.c does not compile"
    mpi_libs='' link_program "$work/$1.o" "$work/$1" || die "$1.c does not link without MPI"
}

# compare FILE LINES - each rank has printed its line.
compare() {
    sort "$1" | diff "$2" - >&2 || die "want the lines (<), got those (>)"
}

build by_fork
timeout 60 "$work/by_fork" 4 >"$work/printed" || die "by_fork fails"
for rank in 0 1 2 3; do
    echo "rank $rank of 4: the numbers of all ranks sum to 6"
done >"$work/expected"
compare "$work/printed" "$work/expected"

build by_files
mkdir "$work/job"
for rank in 0 1 2; do
    RANK=$rank WORLD_SIZE=3 timeout 60 "$work/by_files" "$work/job" &
    ranks="${ranks-} $!"
done >"$work/printed"
for process in $ranks; do
    wait "$process" || die "a rank of by_files fails"
done
for rank in 0 1 2; do
    echo "rank $rank of 3: ready"
done >"$work/expected"
compare "$work/printed" "$work/expected"
