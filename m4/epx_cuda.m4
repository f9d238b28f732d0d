# SPDX-License-Identifier: BSD-3-Clause
# CUDA compiles and links the module libepx_cuda alone, never libepx; nothing links the driver.

# EPX_CHECK_CUDA - NVCC, NVCCFLAGS, NVCC_GENCODE, NVCC_CCBIN, CUDA_CPPFLAGS, CUDA_LIBS, HAVE_CUDA.
AC_DEFUN([EPX_CHECK_CUDA], [
EPX_WITH([cuda], [device memory through CUDA], [bin/nvcc])
AC_ARG_VAR([NVCC], [CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags])
AC_ARG_VAR([NVCC_GENCODE], [-gencode options of the architectures to build for])
AC_ARG_VAR([NVCC_CCBIN], [host compiler for the CUDA compiler])
epx_cuda=no
epx_cuda_why="no nvcc found"
epx_cuda_version=
AS_IF([test "$with_cuda" != no],
  [_EPX_CUDA_DEFAULTS
   _EPX_CUDA_COMPILER])
AS_IF([test "$with_cuda" != no && test -n "$NVCC"], [_EPX_CUDA_TRY])
EPX_OPTIONAL([cuda], [CUDA], [$epx_cuda], [$epx_cuda_why], [CUDA], [$epx_cuda_version])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_LIBS])
])

# nvcc wants a host compiler without arguments: if CXX is "ccache g++ -m64" nvcc is given g++.
AC_DEFUN([_EPX_CUDA_DEFAULTS], [
: ${NVCCFLAGS="-O2 -lineinfo"}
: ${NVCC_GENCODE="-gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90"}
AS_IF([test -z "$NVCC_CCBIN" && test "$epx_cxx" = yes],
  [for epx_word in $CXX; do
     AS_CASE([$epx_word], [-*], [], [NVCC_CCBIN=$epx_word])
   done])
])

AC_DEFUN([_EPX_CUDA_COMPILER], [
epx_cuda_path=$PATH$PATH_SEPARATOR${CUDA_HOME:-/usr/local/cuda}/bin
AS_CASE([$with_cuda],
  [auto|yes],
    [AS_IF([test -z "$NVCC"], [AC_PATH_PROG([NVCC], [nvcc], [], [$epx_cuda_path])])],
  [NVCC=$with_cuda/bin/nvcc])
])

# The folders are those that nvcc itself shows; the runtime is linked statically if it can be.
AC_DEFUN([_EPX_CUDA_TRY], [
AS_IF([test -n "$NVCC_CCBIN"], [NVCC_CCBIN_FLAG="-ccbin $NVCC_CCBIN"], [NVCC_CCBIN_FLAG=])
AC_SUBST([NVCC_CCBIN_FLAG])
epx_cuda_version=`$NVCC --version 2>/dev/null | $SED -n 's/.*release \([[0-9.]]*\).*/\1/p'`
epx_cuda_shown=`$NVCC --dryrun -x cu -c conftest.cu -o conftest.o 2>&1`
_EPX_CUDA_SHOWN([CUDA_CPPFLAGS], [INCLUDES], [-I*])
_EPX_CUDA_SHOWN([epx_cuda_folders], [LIBRARIES], [-L*])
AC_MSG_CHECKING([whether $NVCC works])
cat > conftest.cu <<_EPX_CUDA
#include <cuda_runtime.h>
__global__ void kernel(int *p) { *p = 1; }
extern "C" int launch(int *p) { kernel<<<1, 1>>>(p); return (int)cudaGetLastError(); }
_EPX_CUDA
epx_cuda_why="$NVCC does not compile for NVCC_GENCODE with ${NVCC_CCBIN:-its host compiler}"
AS_IF([AC_RUN_LOG([$NVCC $NVCC_CCBIN_FLAG $NVCC_GENCODE $NVCCFLAGS \
  -forward-unknown-to-host-compiler -fPIC -fno-exceptions -fno-threadsafe-statics \
  -c -o conftest_cuda.o conftest.cu >&2])], [_EPX_CUDA_LINK])
AC_MSG_RESULT([$epx_cuda])
rm -f conftest.cu conftest_cuda.o
])

# _EPX_CUDA_SHOWN(VARIABLE, NAME, PATTERN) - words of a line that nvcc shows, without stub folders.
AC_DEFUN([_EPX_CUDA_SHOWN], [
$1=
for epx_word in `AS_ECHO(["$epx_cuda_shown"]) | $SED -n 's/^#\$ $2=//p' | tr -d '"'`; do
  AS_CASE([$epx_word], [*/stubs], [], [$3], [$1="$$1 $epx_word"])
done
])

AC_DEFUN([_EPX_CUDA_LINK], [
epx_cuda_why="the CUDA runtime library does not link"
epx_save_LIBS=$LIBS
for epx_cuda_runtime in "-lcudart_static -lpthread -ldl -lrt" -lcudart; do
  CUDA_LIBS="$epx_cuda_folders $epx_cuda_runtime"
  LIBS="conftest_cuda.o $CUDA_LIBS $epx_save_LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[int launch(int *);]], [[return launch(0);]])],
    [epx_cuda=yes; break])
done
LIBS=$epx_save_LIBS
])
