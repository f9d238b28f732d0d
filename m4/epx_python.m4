# SPDX-License-Identifier: BSD-3-Clause
# EPX_CHECK_PYTHON - HAVE_PYTHON, PYTHON: the Python package, which is built if it is asked for.
# HAVE_XLA_FFI, XLA_FFI_CPPFLAGS: its JAX half, which is built where the header of jaxlib is.
AC_DEFUN([EPX_CHECK_PYTHON], [
AC_ARG_ENABLE([python],
  [AS_HELP_STRING([--enable-python], [build the Python package epx])],
  [], [enable_python=no])
EPX_WITH([xla_ffi], [folder of xla/ffi/api/c_api.h, for JAX], [xla/ffi/api/c_api.h])
epx_python_summary="no, not asked for"
epx_xla_ffi=no
AS_IF([test "$enable_python" != no], [
  AM_PATH_PYTHON([3.9])
  AS_IF([test "$enable_shared" != yes],
    [AC_MSG_ERROR([--enable-python wants shared libraries])])
  EPX_FIND_XLA_FFI
  epx_python_summary="yes, $PYTHON $PYTHON_VERSION, $epx_jax_summary"
])
AM_CONDITIONAL([HAVE_PYTHON], [test "$enable_python" != no])
AM_CONDITIONAL([HAVE_XLA_FFI], [test "$epx_xla_ffi" = yes])
])

# The header is that of the jaxlib which PYTHON imports, or of the folder that was named.
AC_DEFUN([EPX_FIND_XLA_FFI], [
AC_MSG_CHECKING([for the header of XLA's foreign function interface])
AS_CASE([$with_xla_ffi],
  [no], [epx_xla_ffi_dir=],
  [yes|auto],
    [epx_xla_ffi_dir=`"$PYTHON" -c 'import jax; print(jax.ffi.include_dir())' 2>/dev/null`],
  [epx_xla_ffi_dir=$with_xla_ffi])
AS_IF([test -n "$epx_xla_ffi_dir" && test -f "$epx_xla_ffi_dir/xla/ffi/api/c_api.h"], [
  epx_xla_ffi=yes
  epx_jax_summary="with JAX"
  AC_SUBST([XLA_FFI_CPPFLAGS], ["-isystem $epx_xla_ffi_dir"])
], [
  epx_jax_summary="without JAX: $PYTHON cannot import it"
  AS_IF([test "$with_xla_ffi" = no], [epx_jax_summary="without JAX"])
  AS_IF([test "$with_xla_ffi" = yes],
    [AC_MSG_ERROR([--with-xla-ffi: $PYTHON cannot import jax])])
])
AC_MSG_RESULT([${epx_xla_ffi_dir:-no}])
])
