# SPDX-License-Identifier: BSD-3-Clause
# MPI's flags for whatever CC is: CC is never replaced by a wrapper.

# EPX_CHECK_MPI - MPI_CFLAGS, MPI_LIBS, MPI_KIND (openmpi, mpich, other), MPI_NAME, MPI_MACRO (what
# mpi.h of that kind defines), MPICC_PATH (the wrapper asked, where there is one), MPIEXEC, MPIFC.
AC_DEFUN([EPX_CHECK_MPI], [
AC_ARG_VAR([MPICC], [MPI's compiler wrapper; only asked for its flags])
AC_ARG_VAR([MPIEXEC], [MPI's launcher, for the tests])
AC_ARG_VAR([MPIFC], [MPI's Fortran compiler wrapper, for the test of epx_f08])
AC_ARG_VAR([MPI_CFLAGS], [C compiler flags for MPI, if no wrapper is to be asked])
AC_ARG_VAR([MPI_LIBS], [linker flags for MPI, if no wrapper is to be asked])
AC_ARG_WITH([mpi],
  [AS_HELP_STRING([--with-mpi=DIR],
    [MPI installed in DIR (default: ask MPICC, CC, mpicc or pkg-config)])],
  [], [with_mpi=yes])
AS_IF([test "$with_mpi" = no], [AC_MSG_ERROR([--without-mpi: EPX is a library on top of MPI])])
AC_MSG_CHECKING([for the flags of MPI])
_EPX_MPI_FLAGS
AC_MSG_RESULT([${epx_mpi_source:-not found}])
_EPX_MPI_LINK
_EPX_MPI_NAME
_EPX_MPI_LAUNCHER
])

# The first of: given flags, --with-mpi=DIR, MPICC, a CC that finds MPI itself, mpicc, pkg-config.
AC_DEFUN([_EPX_MPI_FLAGS], [
epx_mpi_source=
AS_IF([test -n "$MPI_CFLAGS$MPI_LIBS"],
    [epx_mpi_source="MPI_CFLAGS and MPI_LIBS"],
  [test "$with_mpi" != yes],
    [MPICC=$with_mpi/bin/mpicc
     _EPX_MPI_ASK([$MPICC])
     AS_IF([test -z "$epx_mpi_source" && test -f "$with_mpi/include/mpi.h"],
       [MPI_CFLAGS=-I$with_mpi/include
        MPI_LIBS="-L$with_mpi/lib -lmpi"
        epx_mpi_source=$with_mpi])
     AS_IF([test -z "$epx_mpi_source"],
       [AC_MSG_ERROR([--with-mpi=$with_mpi: neither bin/mpicc nor include/mpi.h there])])],
  [test -n "$MPICC"],
    [_EPX_MPI_ASK([$MPICC])
     AS_IF([test -z "$epx_mpi_source"],
       [AC_MSG_ERROR([MPICC=$MPICC shows no flags of MPI when asked by -show])])],
  [AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Init(0, 0);]])],
     [_EPX_MPI_ASK([$CC])
      epx_mpi_source=$CC],
     [_EPX_MPI_ASK([mpicc])
      AS_IF([test -n "$epx_mpi_source"], [MPICC=mpicc], [_EPX_MPI_PKG_CONFIG])])])
])

# _EPX_MPI_ASK(WRAPPER) - sort the words of `WRAPPER -show' into MPI_CFLAGS and MPI_LIBS.
AC_DEFUN([_EPX_MPI_ASK], [
epx_mpi_shown=`$1 -show 2>/dev/null || $1 --showme 2>/dev/null`
epx_mpi_previous=
for epx_mpi_word in $epx_mpi_shown; do
  AS_CASE([$epx_mpi_previous,$epx_mpi_word],
    [-Xlinker,*], [MPI_LIBS="$MPI_LIBS -Wl,$epx_mpi_word"],
    [-I,*|-isystem,*], [MPI_CFLAGS="$MPI_CFLAGS -I$epx_mpi_word"],
    [-L,*], [MPI_LIBS="$MPI_LIBS -L$epx_mpi_word"],
    [*,-I?*|*,-D?*], [MPI_CFLAGS="$MPI_CFLAGS $epx_mpi_word"],
    [*,-pthread], [MPI_CFLAGS="$MPI_CFLAGS -pthread"; MPI_LIBS="$MPI_LIBS -pthread"],
    [*,-L?*|*,-l?*|*,-Wl*-rpath*|*,-Wl,/*|*,-Wl,--enable-new-dtags|*,/*/lib*.so|*,/*/lib*.a],
      [MPI_LIBS="$MPI_LIBS $epx_mpi_word"])
  epx_mpi_previous=$epx_mpi_word
done
AS_IF([test -n "$MPI_CFLAGS$MPI_LIBS"], [epx_mpi_source="$1 -show"])
])

AC_DEFUN([_EPX_MPI_PKG_CONFIG], [
for epx_mpi_module in ompi-c ompi mpich mpi-c mpi; do
  AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists $epx_mpi_module 2>/dev/null],
    [MPI_CFLAGS=`$PKG_CONFIG --cflags $epx_mpi_module`
     MPI_LIBS=`$PKG_CONFIG --libs $epx_mpi_module`
     epx_mpi_source="$PKG_CONFIG $epx_mpi_module"
     break])
done
])

AC_DEFUN([_EPX_MPI_LINK], [
epx_save_CPPFLAGS=$CPPFLAGS
epx_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $MPI_CFLAGS"
LIBS="$MPI_LIBS $LIBS"
AC_MSG_CHECKING([whether $CC compiles and links an MPI program])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Init(0, 0);]])],
  [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
   AC_MSG_ERROR([no usable MPI. Debian and Ubuntu have one in the packages libopenmpi-dev and
    openmpi-bin (or libmpich-dev and mpich); elsewhere name it by --with-mpi=DIR or MPICC.])])
AC_MSG_CHECKING([whether MPI is version 3.1 or later])
AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#include <mpi.h>
#if MPI_VERSION < 3 || (MPI_VERSION == 3 && MPI_SUBVERSION < 1)
#error "old MPI"
#endif
]])],
  [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
   AC_MSG_ERROR([EPX needs MPI 3.1, which Open MPI has since 2.0 and MPICH since 3.2])])
CPPFLAGS=$epx_save_CPPFLAGS
LIBS=$epx_save_LIBS
])

AC_DEFUN([_EPX_MPI_NAME], [
epx_save_CPPFLAGS=$CPPFLAGS
CPPFLAGS="$CPPFLAGS $MPI_CFLAGS"
AC_MSG_CHECKING([whose MPI it is])
MPI_KIND=other
MPI_MACRO=
MPI_NAME="an unknown implementation"
AC_COMPUTE_INT([epx_mpi_major], [OMPI_MAJOR_VERSION], [[#include <mpi.h>]], [epx_mpi_major=])
AC_COMPUTE_INT([epx_mpi_number], [MPICH_NUMVERSION / 1000], [[#include <mpi.h>]],
  [epx_mpi_number=])
AS_IF([test -n "$epx_mpi_major"],
    [AC_COMPUTE_INT([epx_mpi_minor], [OMPI_MINOR_VERSION], [[#include <mpi.h>]])
     AC_COMPUTE_INT([epx_mpi_patch], [OMPI_RELEASE_VERSION], [[#include <mpi.h>]])
     MPI_KIND=openmpi
     MPI_MACRO=OMPI_MAJOR_VERSION
     MPI_NAME="Open MPI $epx_mpi_major.$epx_mpi_minor.$epx_mpi_patch"],
  [test -n "$epx_mpi_number"],
    [MPI_KIND=mpich
     MPI_MACRO=MPICH_NUMVERSION
     epx_mpi_major=`expr $epx_mpi_number / 10000`
     epx_mpi_minor=`expr $epx_mpi_number / 100 % 100`
     epx_mpi_patch=`expr $epx_mpi_number % 100`
     MPI_NAME="MPICH $epx_mpi_major.$epx_mpi_minor.$epx_mpi_patch"])
AC_MSG_RESULT([$MPI_NAME])
CPPFLAGS=$epx_save_CPPFLAGS
MPICC_PATH=
AS_IF([test -n "$MPICC"], [MPICC_PATH=`command -v "$MPICC" 2>/dev/null`])
AC_SUBST([MPI_KIND])
AC_SUBST([MPI_MACRO])
AC_SUBST([MPI_NAME])
AC_SUBST([MPICC_PATH])
])

# Finds the launcher and the Fortran wrapper: first beside the compiler wrapper and with its suffix,
# then anywhere.
AC_DEFUN([_EPX_MPI_LAUNCHER], [
for epx_mpi_wrapper in ${MPICC:-$CC}; do :; done
AS_CASE([$epx_mpi_wrapper],
  [*mpicc.*], [epx_mpi_suffix=.`AS_ECHO(["$epx_mpi_wrapper"]) | $SED 's/.*mpicc\.//'`],
  [epx_mpi_suffix=])
epx_mpi_path=$PATH
epx_mpi_wrapper=`command -v "$epx_mpi_wrapper" 2>/dev/null` &&
  epx_mpi_path=`AS_DIRNAME(["$epx_mpi_wrapper"])`$PATH_SEPARATOR$PATH
AS_IF([test -z "$MPIEXEC"],
  [AC_PATH_PROGS([MPIEXEC], [mpiexec$epx_mpi_suffix mpiexec mpiexec.$MPI_KIND mpirun], [],
     [$epx_mpi_path])])
AS_IF([test -n "$MPIEXEC"], [_EPX_MPI_LAUNCHER_NAME],
  [AC_MSG_WARN([no mpiexec found: programs can be built but not tested])
   MPIEXEC=mpiexec])
AS_IF([test -z "$MPIFC"],
  [AC_PATH_PROGS([MPIFC], [mpifort$epx_mpi_suffix mpifort mpifort.$MPI_KIND], [],
     [$epx_mpi_path])])
])

AC_DEFUN([_EPX_MPI_LAUNCHER_NAME], [
AC_MSG_CHECKING([whether $MPIEXEC belongs to $MPI_NAME])
AS_CASE([$MPI_KIND,`$MPIEXEC --version 2>&1`],
  [openmpi,*OpenRTE*|openmpi,*Open*MPI*|mpich,*HYDRA*|mpich,*[[Mm]][[Pp]][[Ii]][[Cc]][[Hh]]*],
    [AC_MSG_RESULT([yes])],
  [openmpi,*HYDRA*|mpich,*OpenRTE*|mpich,*Open*MPI*],
    [AC_MSG_RESULT([no])
     AC_MSG_WARN([$MPIEXEC is the launcher of another MPI; set MPIEXEC])],
  [AC_MSG_RESULT([unknown])])
])
