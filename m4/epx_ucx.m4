# SPDX-License-Identifier: BSD-3-Clause
# EPX_CHECK_UCX - UCX_CPPFLAGS, UCX_LIBS, HAVE_UCX: messages by ucp.
AC_DEFUN([EPX_CHECK_UCX], [
EPX_WITH([ucx], [UCX between nodes], [include/ucp/api/ucp.h])
epx_ucx=no
AS_IF([test "$with_ucx" != no], [_EPX_UCX_TRY])
EPX_OPTIONAL([ucx], [UCX], [$epx_ucx], [no ucp/api/ucp.h and libucp], [UCX], [$epx_ucx_version])
AC_SUBST([UCX_CPPFLAGS])
AC_SUBST([UCX_LIBS])
])

AC_DEFUN([_EPX_UCX_TRY], [
AS_CASE([$with_ucx],
  [auto|yes],
    [UCX_CPPFLAGS=`$PKG_CONFIG --cflags ucx 2>/dev/null`
     UCX_LIBS=`$PKG_CONFIG --libs ucx 2>/dev/null` || UCX_LIBS="-lucp -lucs"],
  [UCX_CPPFLAGS=-I$with_ucx/include
   AS_IF([test -d "$with_ucx/lib64"], [UCX_LIBS="-L$with_ucx/lib64 -lucp -lucs"],
     [UCX_LIBS="-L$with_ucx/lib -lucp -lucs"])])
epx_save_CPPFLAGS=$CPPFLAGS
epx_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $UCX_CPPFLAGS"
LIBS="$UCX_LIBS $LIBS"
AC_MSG_CHECKING([for UCX])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <ucp/api/ucp.h>]],
    [[unsigned major, minor, patch; ucp_get_version(&major, &minor, &patch);]])],
  [epx_ucx=yes
   AC_COMPUTE_INT([epx_ucx_major], [UCP_API_MAJOR], [[#include <ucp/api/ucp.h>]])
   AC_COMPUTE_INT([epx_ucx_minor], [UCP_API_MINOR], [[#include <ucp/api/ucp.h>]])
   epx_ucx_version=$epx_ucx_major.$epx_ucx_minor])
AC_MSG_RESULT([$epx_ucx])
CPPFLAGS=$epx_save_CPPFLAGS
LIBS=$epx_save_LIBS
])
