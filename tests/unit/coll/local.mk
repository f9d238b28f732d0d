# SPDX-License-Identifier: BSD-3-Clause
test_programs += \
  tests/unit/coll/unit_exchange \
  tests/unit/coll/unit_hier \
  tests/unit/coll/unit_nodes \
  tests/unit/coll/unit_ring \
  tests/unit/coll/unit_tuning
if HAVE_CUDA
test_programs += \
  tests/unit/coll/unit_proxy \
  tests/unit/coll/unit_user_memory
endif

tests_unit_coll_unit_exchange_CPPFLAGS = $(unit_cppflags)
tests_unit_coll_unit_exchange_LDADD = $(unit_ldadd)

tests_unit_coll_unit_hier_CPPFLAGS = $(unit_cppflags)
tests_unit_coll_unit_hier_LDADD = $(unit_ldadd)

# A file of the module for CUDA, but it needs no CUDA.
tests_unit_coll_unit_nodes_SOURCES = tests/unit/coll/unit_nodes.c \
  src/coll/device/staged/device_nodes.c
tests_unit_coll_unit_nodes_CPPFLAGS = $(unit_cppflags)
tests_unit_coll_unit_nodes_LDADD = $(unit_ldadd)

# The module's proxy over pretended calls of CUDA, so it needs no GPU. The linker takes these calls
# before those of the runtime library, which the suite links.
tests_unit_coll_unit_proxy_SOURCES = tests/unit/coll/unit_proxy.c \
  $(pretend_streams) $(pretend_copying) \
  src/coll/device/staged/proxy.c src/transport/cuda/asked_copies.c \
  src/transport/cuda/device_scope.c
tests_unit_coll_unit_proxy_CPPFLAGS = $(unit_cppflags) $(vendor_cppflags)
tests_unit_coll_unit_proxy_LDFLAGS = -Wl,-z,muldefs
tests_unit_coll_unit_proxy_LDADD = $(unit_ldadd)

tests_unit_coll_unit_ring_CPPFLAGS = $(unit_cppflags)
tests_unit_coll_unit_ring_LDADD = $(unit_ldadd)

tests_unit_coll_unit_tuning_CPPFLAGS = $(unit_cppflags)
tests_unit_coll_unit_tuning_LDADD = $(unit_ldadd)

tests_unit_coll_unit_user_memory_SOURCES = tests/unit/coll/unit_user_memory.c \
  src/coll/device/user_memory.c
tests_unit_coll_unit_user_memory_CPPFLAGS = $(unit_cppflags) $(vendor_cppflags)
tests_unit_coll_unit_user_memory_LDFLAGS = -Wl,-z,muldefs
tests_unit_coll_unit_user_memory_LDADD = $(unit_ldadd)
