# SPDX-License-Identifier: BSD-3-Clause
# EPX_CHECK_PETSC - PETSC_CPPFLAGS, PETSC_LIBS, HAVE_PETSC: stars of type epx for PETSc's programs.
AC_DEFUN([EPX_CHECK_PETSC], [
EPX_WITH([petsc], [PETSc that the plug-in libepx_petsc is for], [lib/pkgconfig/PETSc.pc])
epx_petsc=no
AS_IF([test "$with_petsc" != no], [_EPX_PETSC_TRY])
EPX_OPTIONAL([petsc], [PETSc], [$epx_petsc], [$epx_petsc_lacks], [PETSC], [$epx_petsc_version])
AC_SUBST([PETSC_CPPFLAGS])
AC_SUBST([PETSC_LIBS])
])

# The type of a star is private to a version of PETSc: 3.18 is the one that was tried. PETSc's
# headers refuse another MPI than the one that it was built with.
AC_DEFUN([_EPX_PETSC_TRY], [
AS_CASE([$with_petsc],
  [auto|yes], [epx_petsc_path=$PKG_CONFIG_PATH],
  [epx_petsc_path=$with_petsc/lib/pkgconfig])
AC_MSG_CHECKING([for PETSc 3.18])
epx_petsc_lacks="pkg-config finds none"
epx_petsc_version=`PKG_CONFIG_PATH=$epx_petsc_path $PKG_CONFIG --modversion PETSc 2>/dev/null`
AS_CASE([$epx_petsc_version],
  [3.18.*], [_EPX_PETSC_COMPILE],
  [?*], [epx_petsc_lacks="$epx_petsc_version is there, and 3.18 is wanted"])
AC_MSG_RESULT([$epx_petsc])
])

AC_DEFUN([_EPX_PETSC_COMPILE], [
PETSC_CPPFLAGS=`PKG_CONFIG_PATH=$epx_petsc_path $PKG_CONFIG --cflags-only-I PETSc |
  $SED 's/-I */-isystem /g'`
PETSC_LIBS=`PKG_CONFIG_PATH=$epx_petsc_path $PKG_CONFIG --libs PETSc`
epx_save_CPPFLAGS=$CPPFLAGS
epx_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $PETSC_CPPFLAGS $MPI_CFLAGS"
LIBS="$PETSC_LIBS $MPI_LIBS $LIBS"
epx_petsc_lacks="its sfimpl.h and library do not go with $MPI_NAME"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <petsc/private/sfimpl.h>]],
    [[PetscSF star; return (int)PetscSFCreate(PETSC_COMM_SELF, &star);]])],
  [epx_petsc=yes])
CPPFLAGS=$epx_save_CPPFLAGS
LIBS=$epx_save_LIBS
])
