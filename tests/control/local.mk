# SPDX-License-Identifier: BSD-3-Clause
# How ranks that MPI did not start come to agree.
test_programs += \
  tests/control/test_bootstrap

# Without MPI: its header alone.
tests_control_test_bootstrap_CPPFLAGS = $(AM_CPPFLAGS)
if HAVE_UCX
tests_control_test_bootstrap_CPPFLAGS += -DEPX_HAVE_UCX
endif
tests_control_test_bootstrap_LDADD = libepx.la -lpthread

TESTS += tests/control/check_chroot.sh
EXTRA_DIST += tests/control/check_chroot.sh
