# SPDX-License-Identifier: BSD-3-Clause
# EPX_CHECK_PYTHON - HAVE_PYTHON, PYTHON: the Python package, which is built if it is asked for.
AC_DEFUN([EPX_CHECK_PYTHON], [
AC_ARG_ENABLE([python],
  [AS_HELP_STRING([--enable-python], [build the Python package epx])],
  [], [enable_python=no])
epx_python_summary="no, not asked for"
AS_IF([test "$enable_python" != no], [
  AM_PATH_PYTHON([3.9])
  AS_IF([test "$enable_shared" != yes],
    [AC_MSG_ERROR([--enable-python wants shared libraries])])
  epx_python_summary="yes, $PYTHON $PYTHON_VERSION"
])
AM_CONDITIONAL([HAVE_PYTHON], [test "$enable_python" != no])
])
