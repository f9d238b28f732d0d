# SPDX-License-Identifier: BSD-3-Clause
# What the optional packages have in common: --with-PACKAGE is yes, no, a folder, or absent.

# EPX_WITH(PACKAGE, WHAT, FILE) - the option; with_PACKAGE is auto if it was not given. A folder
# must have the file.
AC_DEFUN([EPX_WITH], [
AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1@<:@=DIR@:>@], [$2 (default: if it is found)])],
  [], [with_$1=auto])
AS_CASE([$with_$1], [yes|no|auto], [],
  [AS_IF([test ! -f "$with_$1/$3"], [AC_MSG_ERROR([--with-$1=$with_$1: no $3 there])])])
])

# EPX_OPTIONAL(PACKAGE, NAME, FOUND, WHY-NOT, MACRO, VERSION) - define HAVE_MACRO, or fail if the
# package was asked for. FOUND is yes or no. The summary is for configure's table and epx_info.
AC_DEFUN([EPX_OPTIONAL], [
AS_CASE([$3,$with_$1],
  [yes,*],
    [AC_DEFINE([HAVE_$5], [1], [$2 is there])
     epx_$1_summary="yes, $6"],
  [no,no], [epx_$1_summary="no, not wanted"],
  [no,auto], [epx_$1_summary="no, $4"],
  [AC_MSG_ERROR([--with-$1=$with_$1: $4])])
AC_DEFINE_UNQUOTED([EPX_$5_SUMMARY], ["$epx_$1_summary"], [Whether there is $2])
AC_SUBST([with_$1])
AM_CONDITIONAL([HAVE_$5], [test "$3" = yes])
])
