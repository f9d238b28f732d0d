# SPDX-License-Identifier: BSD-3-Clause
# Models of the protocols, which Spin goes through. Each is a test.
models = \
  tests/model/banks.pml \
  tests/model/claims.pml \
  tests/model/comm_end.pml \
  tests/model/copies.pml \
  tests/model/device.pml \
  tests/model/direct.pml \
  tests/model/direct_rings.pml \
  tests/model/edges.pml \
  tests/model/grants.pml \
  tests/model/hier.pml \
  tests/model/progress.pml \
  tests/model/proxy.pml \
  tests/model/route.pml \
  tests/model/shrink.pml
PML_LOG_COMPILER = $(SHELL) $(srcdir)/tests/model/check_model.sh
TESTS += $(models)
EXTRA_DIST += $(models) tests/model/check_model.sh tests/model/memory.pml
