# SPDX-License-Identifier: BSD-3-Clause
# EPX_CHECK_NCCL - NCCL_CPPFLAGS, NCCL_LIBS, HAVE_NCCL: NCCL with windows, for some
# transports of the CUDA module.
AC_DEFUN([EPX_CHECK_NCCL], [
EPX_WITH([nccl], [NCCL between GPUs], [include/nccl.h])
epx_nccl=no
epx_nccl_why="it needs CUDA"
AS_IF([test "$with_nccl" != no && test "$epx_cuda" = yes], [_EPX_NCCL_TRY])
AS_IF([test "$epx_nccl" = no], [NCCL_CPPFLAGS= NCCL_LIBS=])
EPX_OPTIONAL([nccl], [NCCL], [$epx_nccl], [$epx_nccl_why], [NCCL], [$epx_nccl_version])
AC_SUBST([NCCL_CPPFLAGS])
AC_SUBST([NCCL_LIBS])
])

AC_DEFUN([_EPX_NCCL_TRY], [
AS_CASE([$with_nccl],
  [auto|yes],
    [NCCL_CPPFLAGS=
     NCCL_LIBS=-lnccl],
  [NCCL_CPPFLAGS=-I$with_nccl/include
   AS_IF([test -d "$with_nccl/lib64"], [NCCL_LIBS="-L$with_nccl/lib64 -lnccl"],
     [test -e "$with_nccl/lib/libnccl.so"], [NCCL_LIBS="-L$with_nccl/lib -lnccl"],
     [# A wheel of Python has the library's soname alone, in no folder that the loader knows.
      NCCL_LIBS="-L$with_nccl/lib -Wl,-rpath,$with_nccl/lib -l:libnccl.so.2"])])
epx_save_CPPFLAGS=$CPPFLAGS
epx_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $NCCL_CPPFLAGS $CUDA_CPPFLAGS"
LIBS="$NCCL_LIBS $epx_cuda_folders $LIBS"
AC_MSG_CHECKING([for NCCL 2.28 or later])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <nccl.h>
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 0)
#error "old NCCL"
#endif
]], [[int version; return (int)ncclGetVersion(&version);]])],
  [epx_nccl=yes
   AC_COMPUTE_INT([epx_nccl_code], [NCCL_VERSION_CODE], [[#include <nccl.h>]])
   epx_nccl_version=`expr $epx_nccl_code / 10000`.`expr $epx_nccl_code / 100 % 100`
   epx_nccl_version=$epx_nccl_version.`expr $epx_nccl_code % 100`],
  [epx_nccl_why="no nccl.h and libnccl of version 2.28 or later"])
AC_MSG_RESULT([$epx_nccl])
CPPFLAGS=$epx_save_CPPFLAGS
LIBS=$epx_save_LIBS
])
