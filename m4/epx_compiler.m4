# SPDX-License-Identifier: BSD-3-Clause
# What EPX asks of the compilers, and the flags of its own that it gives them.

# EPX_CHECK_C11 - fail unless CC knows C11 with atomics.
AC_DEFUN([EPX_CHECK_C11], [
AC_MSG_CHECKING([whether $CC knows C11 atomics])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#if __STDC_VERSION__ < 201112L || defined(__STDC_NO_ATOMICS__)
#error "no C11 atomics"
#endif
#include <stdatomic.h>
]], [[_Atomic unsigned flag = 0; return (int)atomic_load(&flag);]])],
  [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
   AC_MSG_ERROR([EPX needs a compiler with C11 atomics, such as gcc 5 or clang 3.6])])
])

# EPX_CHECK_CXX - HAVE_CXX, for the tests of the headers; C++ is not needed to build.
AC_DEFUN([EPX_CHECK_CXX], [
AC_MSG_CHECKING([whether a C++ compiler works])
epx_cxx=no
AC_LANG_PUSH([C++])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [epx_cxx=yes])
AC_LANG_POP([C++])
AC_MSG_RESULT([$epx_cxx])
AM_CONDITIONAL([HAVE_CXX], [test "$epx_cxx" = yes])
])

# EPX_ADD_FLAG(VARIABLE, FLAG, [IF-UNKNOWN]) - append FLAG if CC takes it without a warning.
AC_DEFUN([EPX_ADD_FLAG], [
AC_MSG_CHECKING([whether $CC takes $2])
epx_save_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS -Werror $2"
AC_COMPILE_IFELSE([AC_LANG_SOURCE([[int epx_flag(void); int epx_flag(void) { return 0; }]])],
  [AC_MSG_RESULT([yes])
   $1="$$1 $2"],
  [AC_MSG_RESULT([no])
   $3])
CFLAGS=$epx_save_CFLAGS
])

# EPX_CHECK_FLAGS - EPX_CFLAGS: warnings, and sums that no compiler contracts.
AC_DEFUN([EPX_CHECK_FLAGS], [
AC_ARG_ENABLE([werror],
  [AS_HELP_STRING([--enable-werror], [turn compiler warnings into errors])],
  [], [enable_werror=no])
EPX_CFLAGS=
# Row sums are loops of any length: gcc vectorizes them at -O2 only when told so.
EPX_ADD_FLAG([EPX_CFLAGS], [-ftree-vectorize])
EPX_ADD_FLAG([EPX_CFLAGS], [-fvect-cost-model=dynamic])
# The time of a row sum depends on where its loops lie: by up to a sixth from build to build.
EPX_ADD_FLAG([EPX_CFLAGS], [-falign-functions=64])
EPX_ADD_FLAG([EPX_CFLAGS], [-falign-loops=64])
# gcc copies and clears structs by rep movs and rep stos, which begin more slowly than a call does.
EPX_ADD_FLAG([EPX_CFLAGS], [-mstringop-strategy=libcall])
EPX_ADD_FLAG([EPX_CFLAGS], [-ffp-contract=off],
  [AC_MSG_WARN([sums may differ from those of other builds in the last bit])])
m4_foreach_w([epx_flag],
  [-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
   -Wwrite-strings -Wvla],
  [EPX_ADD_FLAG([EPX_CFLAGS], epx_flag)])
AS_IF([test "$enable_werror" = yes], [EPX_CFLAGS="$EPX_CFLAGS -Werror"])
AC_SUBST([EPX_CFLAGS])
])

# EPX_CHECK_WEAK_ALIASES - EPX_PROFILING, yes if CC makes EPX_X a weak alias of PEPX_X.
AC_DEFUN([EPX_CHECK_WEAK_ALIASES], [
AC_CACHE_CHECK([whether $CC makes weak aliases], [epx_cv_weak_aliases],
  [AC_LINK_IFELSE([AC_LANG_SOURCE([[
int PEPX_Try(void);
extern __typeof__(PEPX_Try) epx_weak_Try __asm__("EPX_Try")
    __attribute__((weak, alias("PEPX_Try")));
int PEPX_Try(void) { return 0; }
int EPX_Try(void);
int main(void) { return EPX_Try(); }
]])], [epx_cv_weak_aliases=yes], [epx_cv_weak_aliases=no])])
AS_IF([test "$epx_cv_weak_aliases" = yes],
  [AC_DEFINE([EPX_WEAK_ALIASES], [1], [EPX_X can be a weak alias of PEPX_X])
   epx_profiling_summary="yes, EPX_* are weak aliases of PEPX_*"],
  [epx_profiling_summary="no, $CC makes no weak aliases: there are no PEPX_* functions"])
AM_CONDITIONAL([HAVE_PROFILE_TOOL],
  [test "$epx_cv_weak_aliases" = yes && test "$enable_shared" = yes])
AC_SUBST([EPX_PROFILING], [$epx_cv_weak_aliases])
])
