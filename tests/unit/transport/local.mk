# SPDX-License-Identifier: BSD-3-Clause
test_programs += \
  tests/unit/transport/unit_list \
  tests/unit/transport/unit_letter_liveness
if HAVE_UCX
test_programs += tests/unit/transport/unit_links
endif
if HAVE_CUDA
test_programs += tests/unit/transport/unit_ipc
if HAVE_NCCL
test_programs += tests/unit/transport/unit_nccl_open
check_LTLIBRARIES += tests/unit/transport/libnccl.la
endif
if HAVE_UCX
test_programs += \
  tests/unit/transport/unit_bounce \
  tests/unit/transport/unit_ucx_device
endif
endif

tests_unit_transport_unit_list_CPPFLAGS = $(unit_cppflags)
tests_unit_transport_unit_list_LDADD = $(unit_ldadd)

tests_unit_transport_unit_links_CPPFLAGS = $(unit_cppflags) $(UCX_CPPFLAGS)
tests_unit_transport_unit_links_LDADD = $(unit_ldadd)

tests_unit_transport_unit_letter_liveness_CPPFLAGS = $(unit_cppflags)
tests_unit_transport_unit_letter_liveness_LDADD = $(unit_ldadd)

# What moves device memory, over pretended calls of CUDA. The linker takes these calls before those
# of the runtime library, which the suite links.
own_windows = src/transport/cuda/device_windows.c src/transport/cuda/device_ranks.c \
  src/transport/cuda/device_scope.c
device_messages = tests/unit/transport/device_messages.c tests/unit/transport/device_messages.h \
  $(pretend_copies) $(pretend_copying)

tests_unit_transport_unit_bounce_SOURCES = tests/unit/transport/unit_bounce.c \
  $(device_messages) \
  src/transport/cuda/transport_bounce.c src/transport/cuda/bounce_rounds.c \
  src/transport/cuda/asked_copies.c $(own_windows)
tests_unit_transport_unit_bounce_CPPFLAGS = $(unit_cppflags) $(vendor_cppflags)
tests_unit_transport_unit_bounce_LDFLAGS = -Wl,-z,muldefs
tests_unit_transport_unit_bounce_LDADD = $(unit_ldadd)

tests_unit_transport_unit_ipc_SOURCES = tests/unit/transport/unit_ipc.c \
  $(pretend_copies) $(pretend_ipc) \
  src/transport/cuda/transport_ipc.c src/transport/cuda/peer_windows.c $(own_windows) \
  src/transport/cuda/lost/kept_memory.c src/transport/cuda/lost/process.c
tests_unit_transport_unit_ipc_CPPFLAGS = $(unit_cppflags) $(vendor_cppflags)
tests_unit_transport_unit_ipc_LDFLAGS = -Wl,-z,muldefs
tests_unit_transport_unit_ipc_LDADD = $(unit_ldadd) -lpthread

tests_unit_transport_unit_ucx_device_SOURCES = tests/unit/transport/unit_ucx_device.c \
  $(device_messages) \
  src/transport/ucx/transport_ucx_device.c src/transport/ucx/ucx_exchange.c $(own_windows)
tests_unit_transport_unit_ucx_device_CPPFLAGS = $(unit_cppflags) $(vendor_cppflags)
tests_unit_transport_unit_ucx_device_LDFLAGS = -Wl,-z,muldefs
tests_unit_transport_unit_ucx_device_LDADD = $(unit_ldadd)

tests_unit_transport_unit_nccl_open_SOURCES = tests/unit/transport/unit_nccl_open.c \
  src/transport/nccl/nccl_open.c
tests_unit_transport_unit_nccl_open_CPPFLAGS = $(unit_cppflags) $(vendor_cppflags)
tests_unit_transport_unit_nccl_open_LDADD = $(unit_ldadd)
tests_unit_transport_libnccl_la_SOURCES = tests/pretend/pretend_nccl.c
tests_unit_transport_libnccl_la_LDFLAGS = -shared -version-info 2:0:0 \
  -rpath $(abs_builddir)/tests/unit/transport
