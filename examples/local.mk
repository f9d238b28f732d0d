# SPDX-License-Identifier: BSD-3-Clause
# A bound for the calls of MPI in which ranks wait for each other.
mpi_watch_files = \
  examples/watch/mpi_watch.c \
  examples/watch/mpi_watch.h

bin_PROGRAMS += epx_moe
epx_moe_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/examples
epx_moe_SOURCES = $(epx_moe_files) $(mpi_watch_files)
epx_moe_LDADD = libepx.la $(MPI_LIBS) -lm

epx_moe_files = \
  examples/epx_moe.h \
  examples/epx_moe.c \
  examples/epx_moe_layer.c \
  examples/epx_moe_model.c \
  examples/epx_moe_options.c \
  examples/epx_moe_report.c \
  examples/epx_moe_serial.c \
  examples/epx_moe_space.h \
  examples/epx_moe_space_host.c \
  examples/epx_moe_text.c

# What runs on the GPU, or the file that says that nothing does.
epx_moe_cuda_files = \
  examples/epx_moe_experts.h \
  examples/epx_moe_experts.cu \
  examples/epx_moe_space_cuda.c
epx_moe_no_cuda_files = examples/epx_moe_space_none.c
if HAVE_CUDA
noinst_LTLIBRARIES += libepx_moe_cuda.la
libepx_moe_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) $(vendor_cppflags)
libepx_moe_cuda_la_SOURCES = $(epx_moe_cuda_files)
libepx_moe_cuda_la_LIBADD = $(CUDA_LIBS)
epx_moe_LDADD += libepx_moe_cuda.la
else
epx_moe_SOURCES += $(epx_moe_no_cuda_files)
endif

bin_PROGRAMS += epx_particles
epx_particles_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/examples
epx_particles_SOURCES = $(epx_particles_files) $(epx_particles_lost_files) $(mpi_watch_files)
epx_particles_LDADD = libepx.la $(MPI_LIBS) -lm

epx_particles_files = \
  examples/epx_particles.h \
  examples/epx_particles.c \
  examples/epx_particles_check.c \
  examples/epx_particles_epx.c \
  examples/epx_particles_motion.c \
  examples/epx_particles_mpi.c \
  examples/epx_particles_svg.c \
  examples/epx_particles_tiles.c

epx_particles_lost_files = examples/lost/epx_particles_lost.c

exampledir = $(docdir)/examples
dist_example_DATA = $(epx_moe_files) $(epx_moe_cuda_files) $(epx_moe_no_cuda_files) \
  $(epx_particles_files) \
  examples/CMakeLists.txt \
  examples/Makefile \
  examples/first.c \
  examples/first_f08.F90 \
  examples/harbour.txt

examplewatchdir = $(exampledir)/watch
dist_examplewatch_DATA = $(mpi_watch_files)

examplelostdir = $(exampledir)/lost
dist_examplelost_DATA = $(epx_particles_lost_files)

examplepydir = $(exampledir)/python
dist_examplepy_DATA = \
  examples/python/decode_torch.py \
  examples/python/keep_experts.py \
  examples/python/masked_product.py \
  examples/python/switch_from_deepep.md \
  examples/python/train_jax.py \
  examples/python/train_torch.py \
  examples/python/transformers_moe.py

examplestartdir = $(exampledir)/start
dist_examplestart_DATA = \
  examples/start/by_files.c \
  examples/start/by_fork.c

examplepetscdir = $(exampledir)/petsc
dist_examplepetsc_DATA = examples/petsc/poisson.c
