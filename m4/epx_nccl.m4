# SPDX-License-Identifier: BSD-3-Clause
# EPX_CHECK_NCCL - NCCL_CPPFLAGS, NCCL_LDFLAGS, HAVE_NCCL: NCCL with windows, for some transports of
# the CUDA module, which opens the library. A NCCL of the Python that --enable-python is given comes
# before the system's: torch loads that one.
AC_DEFUN([EPX_CHECK_NCCL], [
EPX_WITH([nccl], [NCCL between GPUs], [include/nccl.h])
epx_nccl=no
epx_nccl_why="it needs CUDA"
AS_IF([test "$with_nccl" != no && test "$epx_cuda" = yes], [_EPX_NCCL_TRY])
AS_IF([test "$epx_nccl" = no], [NCCL_CPPFLAGS= NCCL_LDFLAGS=])
EPX_OPTIONAL([nccl], [NCCL], [$epx_nccl], [$epx_nccl_why], [NCCL], [$epx_nccl_version])
AC_SUBST([NCCL_CPPFLAGS])
AC_SUBST([NCCL_LDFLAGS])
])

AC_DEFUN([_EPX_NCCL_TRY], [
AS_CASE([$with_nccl],
  [auto|yes],
    [_EPX_NCCL_OF_PYTHON
     AS_IF([test "$epx_nccl" = no], [_EPX_NCCL_TRY_FLAGS([], [], [-lnccl], [])])],
  [AS_IF([test -d "$with_nccl/lib64"],
       [_EPX_NCCL_TRY_FLAGS([-I$with_nccl/include], [], [-L$with_nccl/lib64 -lnccl],
          [ in $with_nccl])],
     [test -e "$with_nccl/lib/libnccl.so"],
       [_EPX_NCCL_TRY_FLAGS([-I$with_nccl/include], [], [-L$with_nccl/lib -lnccl],
          [ in $with_nccl])],
     [_EPX_NCCL_TRY_WHEEL([$with_nccl])])])
])

AC_DEFUN([_EPX_NCCL_OF_PYTHON], [
epx_nccl_dir=
AS_IF([test "$enable_python" != no],
  [epx_nccl_dir=`"$PYTHON" -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[[0]])' \
     2>/dev/null`])
AS_IF([test -n "$epx_nccl_dir" && test -e "$epx_nccl_dir/lib/libnccl.so.2"],
  [_EPX_NCCL_TRY_WHEEL([$epx_nccl_dir])])
])

# A wheel of Python has the library's soname alone, in no folder that the loader knows.
AC_DEFUN([_EPX_NCCL_TRY_WHEEL], [
_EPX_NCCL_TRY_FLAGS([-I$1/include], [-Wl,-rpath,$1/lib], [-L$1/lib -l:libnccl.so.2], [ in $1])
])

# _EPX_NCCL_TRY_FLAGS(CPPFLAGS, LDFLAGS, LIBS, WHERE)
AC_DEFUN([_EPX_NCCL_TRY_FLAGS], [
NCCL_CPPFLAGS="$1"
NCCL_LDFLAGS="$2"
epx_save_CPPFLAGS=$CPPFLAGS
epx_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $NCCL_CPPFLAGS $CUDA_CPPFLAGS"
LIBS="$3 $epx_cuda_folders $LIBS"
AC_MSG_CHECKING([for NCCL 2.28 or later$4])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <nccl.h>
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 0)
#error "old NCCL"
#endif
]], [[int version; return (int)ncclGetVersion(&version);]])],
  [epx_nccl=yes
   AC_COMPUTE_INT([epx_nccl_code], [NCCL_VERSION_CODE], [[#include <nccl.h>]])
   epx_nccl_version=`expr $epx_nccl_code / 10000`.`expr $epx_nccl_code / 100 % 100`
   epx_nccl_version="$epx_nccl_version.`expr $epx_nccl_code % 100`$4"],
  [epx_nccl_why="no nccl.h and libnccl of version 2.28 or later"])
AC_MSG_RESULT([$epx_nccl])
CPPFLAGS=$epx_save_CPPFLAGS
LIBS=$epx_save_LIBS
])
