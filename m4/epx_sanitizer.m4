# SPDX-License-Identifier: BSD-3-Clause
# EPX_CHECK_SANITIZER - SANITIZER: a build for the tests in which the compiler's checks stop a
# program at its first fault; tests/run gives such programs their options and suppressions.
AC_DEFUN([EPX_CHECK_SANITIZER], [
AC_ARG_ENABLE([sanitizer],
  [AS_HELP_STRING([--enable-sanitizer=KIND],
    [address (with undefined behaviour and leaks) or thread])],
  [], [enable_sanitizer=no])
SANITIZER=$enable_sanitizer
AS_CASE([$enable_sanitizer],
  [no], [SANITIZER=],
  [address], [epx_sanitizer_flags="-fsanitize=address,undefined -fno-sanitize-recover=all"],
  [thread], [epx_sanitizer_flags=-fsanitize=thread],
  [AC_MSG_ERROR([--enable-sanitizer=$enable_sanitizer: want address or thread])])
AS_IF([test -n "$SANITIZER"], [
  epx_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $epx_sanitizer_flags"
  AC_MSG_CHECKING([whether $CC links with $epx_sanitizer_flags])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([--enable-sanitizer=$SANITIZER: $CC lacks its runtime library])])
  CFLAGS=$epx_save_CFLAGS
  EPX_CFLAGS="$EPX_CFLAGS $epx_sanitizer_flags -fno-omit-frame-pointer -g"
])
AC_SUBST([SANITIZER])
])

# EPX_CHECK_JITTER - ENABLE_JITTER: a build for the tests that src/base/jitter.h explains.
AC_DEFUN([EPX_CHECK_JITTER], [
AC_ARG_ENABLE([jitter],
  [AS_HELP_STRING([--enable-jitter],
    [sleep at random where ranks meet and poison stale memory, to test the protocols])],
  [], [enable_jitter=no])
AM_CONDITIONAL([ENABLE_JITTER], [test "$enable_jitter" = yes])
AS_IF([test "$enable_jitter" = yes],
  [AC_DEFINE([ENABLE_JITTER], [1], [Sleep at random and poison stale memory])])
])
