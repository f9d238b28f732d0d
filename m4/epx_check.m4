# SPDX-License-Identifier: BSD-3-Clause
# EPX_CHECK_CHECK - HAVE_CHECK, CHECK_CFLAGS, CHECK_LIBS: the unit test framework.
AC_DEFUN([EPX_CHECK_CHECK], [
PKG_CHECK_MODULES([CHECK], [check >= 0.11.0], [epx_check=yes], [epx_check=no])
AM_CONDITIONAL([HAVE_CHECK], [test "$epx_check" = yes])
])
