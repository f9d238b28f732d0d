# SPDX-License-Identifier: BSD-3-Clause
# The Python package: modules, and the glue, which they load by ctypes and which opens _mpi.so where
# MPI is wanted. setup.py builds both against an installed EPX.
python_modules = \
  python/epx/__init__.py \
  python/epx/_arena.py \
  python/epx/_arrays.py \
  python/epx/_comm.py \
  python/epx/_core.py \
  python/epx/_eager.py \
  python/epx/_graph.py \
  python/epx/_jax_gradient.py \
  python/epx/_jax_ops.py \
  python/epx/_jax_order.py \
  python/epx/_perf.py \
  python/epx/_perf_jax.py \
  python/epx/_perf_torch.py \
  python/epx/_pools.py \
  python/epx/_rank_rows.py \
  python/epx/_route.py \
  python/epx/_routing.py \
  python/epx/_start.py \
  python/epx/_torch_ops.py \
  python/epx/_window.py \
  python/epx/jax.py \
  python/epx/launch.py \
  python/epx/numpy.py \
  python/epx/perf.py \
  python/epx/torch.py
python_interface_modules = \
  python/epx/interfaces/__init__.py \
  python/epx/interfaces/fp8.py \
  python/epx/interfaces/ground.py
python_te_modules = \
  python/epx/te/__init__.py \
  python/epx/te/_buffer.py \
  python/epx/te/_calls.py \
  python/epx/te/_group.py \
  python/epx/te/_mxfp8.py
python_sources = \
  python/glue.c \
  python/glue.h \
  python/glue_arena.c \
  python/glue_comm.c \
  python/glue_cuda.c \
  python/glue_cuda.h \
  python/glue_device.c \
  python/glue_exchange.c \
  python/glue_extents.c \
  python/glue_look.c \
  python/glue_module.c \
  python/glue_mpi.h \
  python/glue_operation.c \
  python/glue_pool.c \
  python/glue_perf.c \
  python/glue_reserve.c \
  python/glue_route.c \
  python/glue_table.c \
  python/glue_tensor.c \
  python/glue_view.c \
  python/glue_wait.c \
  python/glue_world.c
python_mpi_sources = \
  python/glue_mpi.h \
  python/mpi/mpi_comm.c \
  python/mpi/mpi_core.c \
  python/mpi/mpi_entry.c \
  python/mpi/mpi_group.c \
  python/mpi/mpi_parts.h \
  python/mpi/mpi_ranks.c
EXTRA_DIST += \
  $(python_modules) \
  $(python_interface_modules) \
  $(python_te_modules) \
  $(python_sources) \
  $(python_mpi_sources) \
  python/xla.c \
  python/epx/py.typed \
  python/pyproject.toml \
  python/setup.py \
  python/deep_ep/pyproject.toml \
  python/deep_ep/deep_ep/__init__.py \
  python/deep_ep/deep_ep/_config.py \
  python/deep_ep/deep_ep/_events.py \
  python/deep_ep/deep_ep/_fp8_kernels.py \
  python/deep_ep/deep_ep/_low_latency.py \
  python/deep_ep/deep_ep/_numbers.py \
  python/deep_ep/deep_ep/_version.py \
  python/deep_ep/deep_ep/elastic.py \
  python/deep_ep/deep_ep/legacy.py \
  python/deep_ep/deep_ep/utils/__init__.py \
  python/deep_ep/deep_ep/utils/event.py \
  python/tests/conftest.py \
  python/tests/run_pytest.py \
  python/tests/support/dense.py \
  python/tests/support/jax_here.py \
  python/tests/support/moe.py \
  python/tests/support/slots.py \
  python/tests/support/sparse.py \
  python/tests/support/started.py \
  python/tests/support/wheel.py \
  python/tests/support/windows.py \
  python/tests/deep_ep/conftest.py \
  python/tests/deep_ep/test_elastic.py \
  python/tests/deep_ep/test_graphs.py \
  python/tests/deep_ep/test_legacy.py \
  python/tests/deep_ep/test_low_latency.py \
  python/tests/te/test_te.py \
  python/tests/test_arena.py \
  python/tests/routing/test_combine.py \
  python/tests/routing/test_rows.py \
  python/tests/test_compile.py \
  python/tests/test_compilers.py \
  python/tests/test_copies.py \
  python/tests/test_core.py \
  python/tests/test_errors.py \
  python/tests/test_fork.py \
  python/tests/test_gpu.py \
  python/tests/test_jax.py \
  python/tests/test_jax_distributed.py \
  python/tests/test_jax_errors.py \
  python/tests/test_jax_order.py \
  python/tests/test_jax_programs.py \
  python/tests/test_killed.py \
  python/tests/test_kinds.py \
  python/tests/test_numpy.py \
  python/tests/test_perf.py \
  python/tests/test_raise.py \
  python/tests/routing/test_routing.py \
  python/tests/test_start.py \
  python/tests/test_torch.py \
  python/tests/test_window.py \
  python/tests/test_window_gpu.py \
  python/tests/test_work.py

if HAVE_PYTHON
epxpydir = $(pyexecdir)/epx
epxpy_PYTHON = $(python_modules)
epxpyinterfacesdir = $(epxpydir)/interfaces
epxpyinterfaces_PYTHON = $(python_interface_modules)
epxpytedir = $(epxpydir)/te
epxpyte_PYTHON = $(python_te_modules)
epxpy_DATA = python/epx/py.typed
epxpy_LTLIBRARIES = python/_glue.la python/_mpi.la
endif
python__glue_la_SOURCES = $(python_sources)
if HAVE_XLA_FFI
python__glue_la_SOURCES += python/xla.c
endif
python__glue_la_CPPFLAGS = $(AM_CPPFLAGS) $(XLA_FFI_CPPFLAGS) -D_POSIX_C_SOURCE=200809L
python__glue_la_LIBADD = libepx.la -ldl
python__glue_la_LDFLAGS = -module -avoid-version -shared -export-symbols-regex '^epx_python_'
python__mpi_la_SOURCES = $(python_mpi_sources)
python__mpi_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/python -D_POSIX_C_SOURCE=200809L
python__mpi_la_LIBADD = libepx.la $(MPI_LIBS)
python__mpi_la_LDFLAGS = -module -avoid-version -shared -no-undefined -Wl,-z,defs \
  -export-symbols-regex '^epx_python_mpi_module$$'
