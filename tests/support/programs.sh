# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# programs.sh - what scripts share that compile programs against the library of this build and run
# them. A script sets name, srcdir, top_builddir and work, a folder of its own, and reads this file.

die() {
    echo "${name:?}: $*" >&2
    exit 1
}

skip() {
    echo "${name:?}: skipped, $*"
    exit 77
}

# The value of a variable of the Makefile.
configured() {
    sed -n "s/^$1 = //p" "${top_builddir:?}/Makefile"
}

# A launcher that refuses root or more ranks than cores is told not to.
launch() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
        OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 \
        OMPI_MCA_hwloc_base_binding_policy=none timeout 120 "$@"
}

# What compiles and links, from the environment of make check or from the Makefile.
use_build() {
    [ -f "$top_builddir/Makefile" ] || die "$top_builddir has no Makefile"
    [ -f "$top_builddir/libepx.la" ] || die "libepx.la is not built"
    CC=${CC:-$(configured CC)}
    MPIEXEC=${MPIEXEC:-$(configured MPIEXEC)}
    mpi_cflags=$(configured MPI_CFLAGS | sed 's/-I */-isystem /g')
    mpi_libs=$(configured MPI_LIBS)
    own_cflags="$(configured EPX_CFLAGS) -std=c99 -Wall -Wextra -Wpedantic -Werror"
    cflags=$(configured CFLAGS)
}

# compile SOURCE OBJECT FLAGS... - by the flags of the project, as C99, a warning being an error.
compile() {
    source=$1 object=$2
    shift 2
    # shellcheck disable=SC2086 # lists of words
    $CC $own_cflags "$@" $mpi_cflags $cflags -c -o "$object" "$source"
}

# link_program OBJECT PROGRAM [LIBRARY...]
link_program() {
    object=$1 program=$2
    shift 2
    # shellcheck disable=SC2086
    "$top_builddir/libtool" --silent --tag=CC --mode=link $CC $cflags -o "$program" "$object" \
        "$top_builddir/libepx.la" "$@" $mpi_libs
}

# build_program SOURCE PROGRAM [FLAG...] - or dies.
build_program() {
    source=$1 program=$2
    shift 2
    compile "$source" "$program.o" -I"${srcdir:?}/include" "$@" || die "$source does not compile"
    link_program "$program.o" "$program" || die "$source does not link"
}

# A Fortran compiler that has mpi_f08, or the reason to skip; warnings only if they are known.
use_fortran() {
    MPIFC=$(configured MPIFC)
    [ -n "$MPIFC" ] || skip "configure found no Fortran compiler wrapper of MPI"
    printf 'use mpi_f08\ncall MPI_Init()\ncall MPI_Finalize()\nend\n' >"$work/try.f90"
    (cd "$work" && $MPIFC -o try try.f90) >"$work/said" 2>&1 ||
        skip "$MPIFC does not build a program that uses mpi_f08"
    fortran_warnings=
    case $($MPIFC --version 2>/dev/null) in *"GNU Fortran"*)
        fortran_warnings="-std=f2018 -Wall -Wextra -Werror"
        ;;
    esac
}
