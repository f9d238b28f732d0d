# SPDX-License-Identifier: BSD-3-Clause
# Exchanges without a route that are started again and again, which every transport must do.
test_programs += tests/exchange/test_neighbor tests/exchange/test_persistent \
  tests/exchange/test_scale
if HAVE_CUDA
test_programs += tests/exchange/test_persistent_device
endif

tests_exchange_test_neighbor_CPPFLAGS = $(suite_cppflags)
tests_exchange_test_neighbor_LDADD = $(suite_ldadd)

tests_exchange_test_scale_CPPFLAGS = $(suite_cppflags)
tests_exchange_test_scale_LDADD = $(suite_ldadd)

tests_exchange_test_persistent_CPPFLAGS = $(suite_cppflags)
tests_exchange_test_persistent_LDADD = $(suite_ldadd)

tests_exchange_test_persistent_device_CPPFLAGS = $(suite_cppflags) $(vendor_cppflags)
tests_exchange_test_persistent_device_LDADD = $(suite_ldadd) $(CUDA_LIBS)
