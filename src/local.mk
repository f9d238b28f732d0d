# SPDX-License-Identifier: BSD-3-Clause
# libepx is libepx_core, which the unit tests link, with EPX_*, PEPX_* and what the Fortran module
# calls, epx_f08_*, alone exported; libepx_cuda is the module for device memory, opened when the
# first device communicator is made.
include_HEADERS = include/epx.h

noinst_LTLIBRARIES += libepx_core.la
libepx_core_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/src \
  $(patsubst -I%,-isystem%,$(UCX_CPPFLAGS)) -DEPX_MODULE_DIR='"$(pkglibdir)"'
libepx_core_la_LIBADD = $(MPI_LIBS)
libepx_core_la_SOURCES = \
  src/base/status.c \
  src/base/status.h \
  src/base/log.c \
  src/base/log.h \
  src/base/param.c \
  src/base/param.h \
  src/base/jitter.h \
  src/core/agree.c \
  src/core/agree.h \
  src/base/stats.c \
  src/base/stats.h \
  src/base/memory.c \
  src/base/memory.h \
  src/core/progress.c \
  src/core/progress.h \
  src/core/request.c \
  src/core/request.h \
  src/core/route.c \
  src/core/route.h \
  src/core/comm.c \
  src/core/comm.h \
  src/kernels/element.h \
  src/kernels/layout.h \
  src/kernels/plan.h \
  src/kernels/host/row_arithmetic.h \
  src/kernels/host/row_copy.c \
  src/kernels/host/row_copy.h \
  src/kernels/host/stage_stores.c \
  src/kernels/host/stage_stores.h \
  src/kernels/host/rows.h \
  src/kernels/host/rows.c \
  src/kernels/host/host_kernels.h \
  src/kernels/host/kernels_host.c \
  src/kernels/host/count_pairs_host.c \
  src/kernels/host/offset_slabs_host.c \
  src/kernels/host/assign_slots_host.c \
  src/kernels/host/index_rows_host.c \
  src/kernels/host/zero_padding_host.c \
  src/kernels/host/pack_rows_host.c \
  src/kernels/host/unpack_rows_host.c \
  src/kernels/host/sum_pairs_host.c \
  src/kernels/host/sum_ranks_host.c \
  src/kernels/node_rows.h \
  src/kernels/host/list_node_rows_host.c \
  src/kernels/host/pack_node_rows_host.c \
  src/kernels/host/unpack_node_rows_host.c \
  src/kernels/host/sum_node_ranks_host.c \
  src/kernels/host/sum_nodes_host.c \
  src/core/ready.c \
  src/core/ready.h \
  src/base/flags.h \
  src/coll/direct.c \
  src/coll/direct.h \
  src/coll/staged.c \
  src/coll/staged.h \
  src/transport/shm/node_window.c \
  src/transport/shm/node_window.h \
  src/coll/tiers.c \
  src/coll/tiers_blocks.c \
  src/coll/tiers.h \
  src/transport/shm/transport_shm.c \
  src/transport/mpi/mpi_liveness.c \
  src/transport/mpi/mpi_liveness.h \
  src/transport/mpi/transport_mpi.c \
  src/transport/list.c \
  src/transport/transport.h \
  src/transport/module.c \
  src/transport/module.h \
  src/coll/verbs.c \
  src/coll/verbs.h \
  src/coll/dispatch_direct.c \
  src/coll/dispatch_staged.c \
  src/coll/dispatch_tiered.c \
  src/coll/dispatch.c \
  src/coll/combine_direct.c \
  src/coll/combine_staged.c \
  src/coll/combine_tiered.c \
  src/coll/combine.c \
  src/coll/routing.c \
  src/coll/routing.h \
  src/coll/routing_direct.c \
  src/coll/routing_staged.c \
  src/coll/routing_tiered.c \
  src/coll/node_plan.c \
  src/coll/alltoallv.c \
  src/coll/alltoallv.h \
  src/coll/alltoallv_direct.c \
  src/coll/alltoallv_staged.c \
  src/profile.h \
  src/api.c \
  src/api.h \
  src/api_init.c \
  src/api_comm.c \
  src/api_route.c \
  src/api_coll.c \
  src/api_request.c \
  src/f08.c \
  src/f08.h

if ENABLE_JITTER
libepx_core_la_SOURCES += src/base/jitter.c
endif

if HAVE_UCX
libepx_core_la_LIBADD += $(UCX_LIBS)
libepx_core_la_SOURCES += \
  src/transport/ucx/transport_ucx.c \
  src/transport/ucx/ucx_context.c \
  src/transport/ucx/ucx_context.h \
  src/transport/ucx/ucx_link.h \
  src/transport/ucx/ucx_links.c \
  src/transport/ucx/ucx_links.h \
  src/transport/ucx/ucx_liveness.c \
  src/transport/ucx/ucx_memory.c \
  src/transport/ucx/ucx_messages.c
endif

lib_LTLIBRARIES += libepx.la
libepx_la_SOURCES =
libepx_la_LIBADD = libepx_core.la
libepx_la_LDFLAGS = -version-info 0:0:0 -no-undefined -export-symbols-regex '^(P?EPX|epx_f08)_'

if HAVE_CUDA
pkglib_LTLIBRARIES += libepx_cuda.la
endif
# The vendors' headers are not held to our warnings.
vendor_cppflags = \
  $(patsubst -I%,-isystem%,$(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS) $(UCX_CPPFLAGS))
libepx_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/src $(vendor_cppflags)
libepx_cuda_la_LIBADD = $(NCCL_LIBS) $(CUDA_LIBS)
libepx_cuda_la_LDFLAGS = -module -avoid-version -no-undefined -export-symbols-regex '^epx_' \
  -Wl,-z,defs
libepx_cuda_la_SOURCES = \
  src/kernels/routing/count_pairs.cu \
  src/kernels/protocol/protocol.cuh \
  src/kernels/protocol/kernel_jitter.cuh \
  src/kernels/protocol/order.cuh \
  src/kernels/protocol/ready_words.cuh \
  src/kernels/protocol/waits.cuh \
  src/base/memory.c \
  src/kernels/device_args.h \
  src/kernels/device_plan.h \
  src/kernels/protocol/warp_rows.cuh \
  src/kernels/protocol/records.cuh \
  src/kernels/combine/sums.cuh \
  src/kernels/load_kernels.c \
  src/kernels/routing/pairs.cuh \
  src/kernels/routing/slots.cuh \
  src/kernels/routing/routing_steps.cuh \
  src/kernels/ring.h \
  src/kernels/protocol/exchange.cuh \
  src/kernels/protocol/message_rows.cuh \
  src/kernels/protocol/relays.cuh \
  src/kernels/protocol/numbering.cuh \
  src/kernels/dispatch/passes.cuh \
  src/kernels/combine/passed_sums.cuh \
  src/kernels/combine/packed_places.cuh \
  src/kernels/alltoallv/count_checks.cuh \
  src/kernels/protocol/agree_ranks.cu \
  src/kernels/protocol/await_messages.cu \
  src/kernels/routing/count_tokens.cu \
  src/kernels/routing/list_node_rows.cu \
  src/kernels/routing/send_records.cu \
  src/kernels/routing/list_passed_rows.cu \
  src/kernels/routing/find_slots.cu \
  src/kernels/dispatch/pack_rows.cu \
  src/kernels/dispatch/pass_rows.cu \
  src/kernels/dispatch/unpack_rows.cu \
  src/kernels/dispatch/packs.cuh \
  src/kernels/dispatch/dispatch_rounds.cu \
  src/kernels/combine/combine_rounds.cu \
  src/kernels/combine/pack_sums.cu \
  src/kernels/combine/pass_sums.cu \
  src/kernels/combine/unpack_sums.cu \
  src/kernels/alltoallv/alltoallv_messages.cu \
  src/kernels/routing/route_tokens.cu \
  src/kernels/dispatch/dispatch_rows.cu \
  src/kernels/dispatch/sends.cuh \
  src/kernels/dispatch/store_rows.cu \
  src/kernels/dispatch/spread_rows.cu \
  src/kernels/dispatch/scale_rows.cu \
  src/kernels/combine/combine_rows.cu \
  src/kernels/combine/store_sums.cu \
  src/kernels/combine/sum_ranks.cu \
  src/kernels/dispatch/await_rows.cu \
  src/kernels/alltoallv/packets.cuh \
  src/kernels/alltoallv/alltoallv_rows.cu \
  src/kernels/protocol/announce_end.cu \
  src/transport/cuda/cuda_errors.h \
  src/coll/module_cuda.c \
  src/coll/device.c \
  src/coll/device.h \
  src/coll/control_window.c \
  src/coll/device_args.c \
  src/coll/device_nodes.c \
  src/coll/device_nodes.h \
  src/coll/device_liveness.c \
  src/coll/device_order.c \
  src/transport/cuda/device_scope.c \
  src/transport/cuda/device_scope.h \
  src/coll/outcome.c \
  src/coll/routing_device.c \
  src/coll/dispatch_device.c \
  src/coll/combine_device.c \
  src/coll/alltoallv_device.c \
  src/coll/proxy.c \
  src/coll/proxy.h \
  src/coll/routing_messages.c \
  src/coll/dispatch_messages.c \
  src/coll/combine_messages.c \
  src/coll/alltoallv_messages.c \
  src/transport/cuda/transport_bounce.c \
  src/transport/cuda/bounce_rounds.c \
  src/transport/cuda/bounce_rounds.h \
  src/transport/cuda/pieces.h \
  src/transport/cuda/device_ranks.c \
  src/transport/cuda/device_ranks.h \
  src/transport/cuda/device_windows.c \
  src/transport/cuda/device_windows.h \
  src/transport/cuda/peer_windows.c \
  src/transport/cuda/peer_windows.h \
  src/transport/cuda/transport_ipc.c
if HAVE_NCCL
libepx_cuda_la_SOURCES += \
  src/transport/nccl/transport_nccl.c \
  src/transport/nccl/nccl_ranks.c \
  src/transport/nccl/nccl_ranks.h \
  src/transport/nccl/transport_lsa.c \
  src/transport/nccl/lsa_window.h \
  src/transport/nccl/lsa_window.cu
endif
if HAVE_UCX
libepx_cuda_la_LIBADD += $(UCX_LIBS)
libepx_cuda_la_SOURCES += \
  src/transport/ucx/ucx_context.c \
  src/transport/ucx/ucx_context.h \
  src/transport/ucx/transport_ucx_device.c \
  src/transport/ucx/transport_ucx_device.h \
  src/transport/ucx/ucx_exchange.c
endif
if ENABLE_JITTER
libepx_cuda_la_SOURCES += src/base/jitter.c
endif

SUFFIXES += .cu .lo
cu_depends = src/kernels/*/*.cu.d src/transport/*/*.cu.d examples/*.cu.d tests/*.cu.d \
  tools/*.cu.d
MOSTLYCLEANFILES += $(cu_depends)

EPX_NVCCFLAGS = $(NVCC_CCBIN_FLAG) $(NVCC_GENCODE) -std=c++17 -fmad=false \
  -forward-unknown-to-host-compiler -Wall -Wextra -Wno-unused-function -ffp-contract=off \
  -fno-exceptions -fno-threadsafe-statics

AM_V_NVCC = $(am__v_NVCC_$(V))
am__v_NVCC_ = $(am__v_NVCC_$(AM_DEFAULT_VERBOSITY))
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =

.cu.lo:
	@$(MKDIR_P) $(@D)
	$(AM_V_NVCC)$(LIBTOOL) $(AM_V_lt) --tag=CC $(AM_LIBTOOLFLAGS) $(LIBTOOLFLAGS) --mode=compile \
	  $(NVCC) $(EPX_NVCCFLAGS) $(DEFS) $(DEFAULT_INCLUDES) -I$(top_srcdir)/src $(AM_CPPFLAGS) \
	  $(vendor_cppflags) -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX $(CPPFLAGS) \
	  $(NVCCFLAGS) -MMD -MP -MF $*.cu.d -MT $@ -c -o $@ $<

-include $(wildcard $(cu_depends))
