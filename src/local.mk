# SPDX-License-Identifier: BSD-3-Clause
# libepx is libepx_core, which the unit tests link, but exports only EPX_*, PEPX_* and what the
# Fortran module calls, epx_f08_*. libepx_cuda is the module for device memory, opened when the
# first device communicator is made; libepx_mpi is that for what calls MPI, so that libepx can be
# loaded where there is none.
#
# A release that only adds to the interface raises the first and the third number of -version-info,
# and libepx.so.0 keeps its name; one that changes nothing there raises the second.
include_HEADERS = include/epx.h

noinst_LTLIBRARIES += libepx_core.la
libepx_core_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/src \
  $(patsubst -I%,-isystem%,$(UCX_CPPFLAGS)) -DEPX_MODULE_DIR='"$(pkglibdir)"'
libepx_core_la_LIBADD =
libepx_core_la_SOURCES =
if HAVE_UCX
libepx_core_la_LIBADD += $(UCX_LIBS)
endif

lib_LTLIBRARIES += libepx.la
libepx_la_SOURCES =
libepx_la_CPPFLAGS = $(libepx_core_la_CPPFLAGS)
libepx_la_LIBADD = libepx_core.la
# MPI_Finalize calls into libepx, which may have been a part of a plug-in that was closed before.
libepx_la_LDFLAGS = -version-info 2:0:2 -no-undefined -Wl,-z,nodelete \
  -export-symbols-regex '^(P?EPX|epx_f08)_'

noinst_LTLIBRARIES += libepx_mpi_parts.la
libepx_mpi_parts_la_CPPFLAGS = $(libepx_core_la_CPPFLAGS)
libepx_mpi_parts_la_LIBADD = $(MPI_LIBS)
libepx_mpi_parts_la_SOURCES =
pkglib_LTLIBRARIES += libepx_mpi.la
libepx_mpi_la_CPPFLAGS = $(libepx_core_la_CPPFLAGS)
libepx_mpi_la_LIBADD = libepx_mpi_parts.la
libepx_mpi_la_LDFLAGS = -module -avoid-version -no-undefined -Wl,-z,defs \
  -export-symbols-regex '^epx_mpi_module$$'
libepx_mpi_la_SOURCES =

if HAVE_CUDA
pkglib_LTLIBRARIES += libepx_cuda.la
endif
# The vendors' headers are not held to our warnings.
vendor_cppflags = \
  $(patsubst -I%,-isystem%,$(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS) $(UCX_CPPFLAGS))
libepx_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/src $(vendor_cppflags) -DEPX_CUDA_MODULE
libepx_cuda_la_LIBADD = $(CUDA_LIBS) -ldl
libepx_cuda_la_LDFLAGS = $(NCCL_LDFLAGS) -module -avoid-version -no-undefined -Wl,-z,defs \
  -export-symbols-regex '^epx_cuda_module$$'
libepx_cuda_la_SOURCES =
if HAVE_UCX
libepx_cuda_la_LIBADD += $(UCX_LIBS)
endif

# The layers, lowest first; each folder names its own files.
include src/base/local.mk
include src/control/local.mk
include src/core/local.mk
include src/core/health/local.mk
include src/kernels/local.mk
include src/transport/local.mk
include src/coll/local.mk
include src/mpi/local.mk
include src/api/local.mk

SUFFIXES += .cu .lo .ptx
cu_depends = src/kernels/*/*.cu.d src/kernels/*/*/*.cu.d src/transport/*/*.cu.d examples/*.cu.d \
  tools/epx_perf/*/*.cu.d
MOSTLYCLEANFILES += $(cu_depends)

EPX_NVCCFLAGS = $(NVCC_CCBIN_FLAG) -std=c++17 -fmad=false \
  -forward-unknown-to-host-compiler -Wall -Wextra -Wno-unused-function -ffp-contract=off \
  -fno-exceptions -fno-threadsafe-statics
CU_CPPFLAGS = $(DEFS) $(DEFAULT_INCLUDES) -I$(top_srcdir)/src $(AM_CPPFLAGS) $(vendor_cppflags) \
  -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX $(CPPFLAGS)

AM_V_NVCC = $(am__v_NVCC_$(V))
am__v_NVCC_ = $(am__v_NVCC_$(AM_DEFAULT_VERBOSITY))
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =

.cu.lo:
	@$(MKDIR_P) $(@D)
	$(AM_V_NVCC)$(LIBTOOL) $(AM_V_lt) --tag=CC $(AM_LIBTOOLFLAGS) $(LIBTOOLFLAGS) --mode=compile \
	  $(NVCC) $(EPX_NVCCFLAGS) $(NVCC_GENCODE) $(CU_CPPFLAGS) \
	  $(NVCCFLAGS) -MMD -MP -MF $*.cu.d -MT $@ -c -o $@ $<

# What a kernel is for a GPU that copies nothing in bulk; tests/tools/check_older_gpus.sh
.cu.ptx:
	@$(MKDIR_P) $(@D)
	$(NVCC) $(EPX_NVCCFLAGS) -gencode arch=compute_80,code=compute_80 $(CU_CPPFLAGS) \
	  $(NVCCFLAGS) -ptx -o $@ $<
MOSTLYCLEANFILES += src/kernels/*/*/*.ptx

-include $(wildcard $(cu_depends))
