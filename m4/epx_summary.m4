# SPDX-License-Identifier: BSD-3-Clause
# EPX_SUMMARY - the table that ends configure; epx_info tells which transports there are.
AC_DEFUN([EPX_SUMMARY], [
cat <<_EPX_SUMMARY

EPX $PACKAGE_VERSION

  compiler     $CC $CFLAGS
  own flags   $EPX_CFLAGS
  sanitizer    ${SANITIZER:-no}, jitter $enable_jitter
  MPI          $MPI_NAME ($epx_mpi_source)
  launcher     $MPIEXEC
  Fortran      ${MPIFC:-no wrapper found} (test of epx_f08)
  CUDA         $epx_cuda_summary
  NCCL         $epx_nccl_summary
  UCX          $epx_ucx_summary
  PETSc        $epx_petsc_summary
  Check        $epx_check (unit tests)
  profiling    $epx_profiling_summary
  Python       $epx_python_summary
  prefix       $prefix

_EPX_SUMMARY
])
