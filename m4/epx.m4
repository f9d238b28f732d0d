# SPDX-License-Identifier: BSD-3-Clause
# epx.m4 - finds EPX for the configure script of a program that uses it. Installed for aclocal.

# EPX_CHECK_EPX([MINIMUM-VERSION], [ACTION-IF-FOUND], [ACTION-IF-NOT-FOUND = error])
#
# Sets LIBEPX_CFLAGS and LIBEPX_LIBS, MPI's flags among them, for Makefiles too. They come from
# pkg-config, or from the folder of --with-epx=DIR, or from the user, who may set both. Where there
# is no pkg-config DIR has to be given, and CC has to find MPI, as CC=mpicc does. The names do not
# start with EPX_ because a variable of the environment that does is taken for a hint of EPX.
AC_DEFUN([EPX_CHECK_EPX], [
AC_REQUIRE([AC_PROG_CC])
AC_REQUIRE([AC_PROG_AWK])
AC_ARG_VAR([LIBEPX_CFLAGS], [C compiler flags for EPX, if pkg-config is not to be asked])
AC_ARG_VAR([LIBEPX_LIBS], [linker flags for EPX, if pkg-config is not to be asked])
AC_ARG_VAR([PKG_CONFIG], [path to pkg-config utility])
AC_CHECK_TOOL([PKG_CONFIG], [pkg-config])
AC_ARG_WITH([epx],
  [AS_HELP_STRING([--with-epx=DIR], [EPX installed in DIR (default: ask pkg-config)])],
  [], [with_epx=yes])
AC_MSG_CHECKING([for EPX]m4_ifval([$1], [ $1 or later]))
libepx_why=
AS_CASE([$with_epx],
  [no], [libepx_why="not wanted"],
  [yes],
    [AS_IF([test -z "$LIBEPX_CFLAGS$LIBEPX_LIBS"], [_EPX_ASK_PKG_CONFIG([])])],
  [_EPX_ASK_FOLDER])
AS_IF([test -z "$libepx_why"], [_EPX_TRY_FLAGS([m4_default([$1], [0])])])
AS_IF([test -z "$libepx_why"],
  [AC_MSG_RESULT([yes])
   $2],
  [AC_MSG_RESULT([no, $libepx_why])
   m4_default([$3], [AC_MSG_ERROR([EPX: $libepx_why; see --with-epx=DIR])])])
])

# _EPX_ASK_PKG_CONFIG(OPTIONS)
AC_DEFUN([_EPX_ASK_PKG_CONFIG], [
AS_IF([test -z "$PKG_CONFIG"],
    [libepx_why="there is no pkg-config"],
  [$PKG_CONFIG --exists epx 2>/dev/null],
    [LIBEPX_CFLAGS=`$PKG_CONFIG $1 --cflags epx`
     LIBEPX_LIBS=`$PKG_CONFIG $1 --libs epx`],
  [libepx_why="pkg-config does not find epx"])
])

# The epx.pc of the folder, which may have been moved since it was installed; else plain flags.
AC_DEFUN([_EPX_ASK_FOLDER], [
libepx_pc=
libepx_lib=
for libepx_try in "$with_epx"/lib "$with_epx"/lib64 "$with_epx"/lib/*; do
  AS_IF([test -z "$libepx_pc" && test -f "$libepx_try/pkgconfig/epx.pc"],
    [libepx_pc=$libepx_try/pkgconfig])
  for libepx_file in "$libepx_try"/libepx.*; do
    AS_IF([test -z "$libepx_lib" && test -f "$libepx_file"], [libepx_lib=$libepx_try])
  done
done
AS_IF([test ! -f "$with_epx/include/epx.h" || test -z "$libepx_lib"],
    [libepx_why="--with-epx=$with_epx: no include/epx.h or no libepx there"],
  [libepx_save_path=$PKG_CONFIG_PATH
   PKG_CONFIG_PATH=$libepx_pc${PKG_CONFIG_PATH:+$PATH_SEPARATOR$PKG_CONFIG_PATH}
   export PKG_CONFIG_PATH
   AS_IF([test -n "$libepx_pc"], [_EPX_ASK_PKG_CONFIG(["--define-variable=prefix=$with_epx"])])
   AS_IF([test -z "$libepx_pc" || test -n "$libepx_why"],
     [libepx_why=
      LIBEPX_CFLAGS=-I$with_epx/include
      LIBEPX_LIBS="-L$libepx_lib -lepx"])
   PKG_CONFIG_PATH=$libepx_save_path])
])

# _EPX_TRY_FLAGS(MINIMUM-VERSION)
AC_DEFUN([_EPX_TRY_FLAGS], [
libepx_least=`AS_ECHO(["$1"]) | $AWK -F. '{ printf "%d", ($[]1 * 1000 + $[]2) * 1000 + $[]3 }'`
libepx_save_CPPFLAGS=$CPPFLAGS
libepx_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $LIBEPX_CFLAGS"
LIBS="$LIBEPX_LIBS $LIBS"
AC_LANG_PUSH([C])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <epx.h>]],
    [[int major, minor, patch; return EPX_Get_version(&major, &minor, &patch);]])],
  [AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#include <epx.h>
#if (EPX_VERSION_MAJOR * 1000 + EPX_VERSION_MINOR) * 1000 + EPX_VERSION_PATCH < $libepx_least
#error "old EPX"
#endif
]])], [], [libepx_why="it is older"])],
  [libepx_why="a program does not build with $LIBEPX_CFLAGS $LIBEPX_LIBS"])
AC_LANG_POP([C])
CPPFLAGS=$libepx_save_CPPFLAGS
LIBS=$libepx_save_LIBS
])
