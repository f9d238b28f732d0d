# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC2154 # names that the scripts set
# programs.sh - what the checks of pages share, which source it: how to compile a program that a
# page shows, against the library of this build, and how to run it. They set name, srcdir,
# top_builddir and work.

die() {
    echo "$name: $*" >&2
    exit 1
}

skip() {
    echo "$name: skipped, $*"
    exit 77
}

configured() {
    sed -n "s/^$1 = //p" "$top_builddir/Makefile"
}

find_tools() {
    [ -f "$top_builddir/Makefile" ] || die "$top_builddir has no Makefile"
    [ -f "$top_builddir/libepx.la" ] || die "libepx.la is not built"
    CC=${CC:-$(configured CC)}
    MPIEXEC=${MPIEXEC:-$(configured MPIEXEC)}
    mpi_cflags=$(configured MPI_CFLAGS | sed 's/-I */-isystem /g')
    mpi_libs=$(configured MPI_LIBS)
    cflags=$(configured CFLAGS)
}

# compile PROGRAM.c [FLAG...] - makes the object in the work folder, with warnings as errors.
compile() {
    source=$1
    object=$work/$(basename "$source" .c).o
    shift
    # shellcheck disable=SC2086 # lists of words
    $CC -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$srcdir/include" $mpi_cflags "$@" $cflags \
        -c -o "$object" "$source" || die "$source does not compile"
}

# link_program NAME [LIBRARY...] - the program beside its object.
link_program() {
    program=$work/$1
    shift
    # shellcheck disable=SC2086
    "$top_builddir/libtool" --silent --tag=CC --mode=link $CC $cflags -o "$program" \
        "$program.o" "$top_builddir/libepx.la" "$@" $mpi_libs || die "$program does not link"
}

# launch COMMAND... - on 2 ranks. A launcher that refuses root or more ranks than cores is told not
# to.
launch() {
    # shellcheck disable=SC2086 # the launcher may have arguments
    ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
        OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 \
        OMPI_MCA_hwloc_base_binding_policy=none timeout 120 $MPIEXEC -n 2 "$@"
}
