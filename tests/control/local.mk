# SPDX-License-Identifier: BSD-3-Clause
# How ranks that MPI did not start come to agree.
test_programs += \
  tests/control/test_bootstrap \
  tests/control/test_contact

# Without MPI: its header alone.
scenes = tests/control/scenes.c tests/control/scenes.h
tests_control_test_bootstrap_SOURCES = tests/control/test_bootstrap.c $(scenes)
tests_control_test_bootstrap_CPPFLAGS = $(tests_cppflags)
tests_control_test_bootstrap_LDADD = libepx.la -lpthread
tests_control_test_contact_SOURCES = tests/control/test_contact.c $(scenes)
tests_control_test_contact_CPPFLAGS = $(tests_cppflags)
tests_control_test_contact_LDADD = libepx.la
if HAVE_UCX
tests_control_test_bootstrap_CPPFLAGS += -DEPX_HAVE_UCX
tests_control_test_contact_CPPFLAGS += -DEPX_HAVE_UCX
endif

# How long a creation takes, for docs/performance.md.
check_PROGRAMS += tests/control/time_creation
tests_control_time_creation_CPPFLAGS = $(tests_cppflags)
tests_control_time_creation_LDADD = libepx.la $(MPI_LIBS) -lpthread

control_checks = tests/control/check_chroot.sh tests/control/check_many.sh
TESTS += $(control_checks)
EXTRA_DIST += $(control_checks)
