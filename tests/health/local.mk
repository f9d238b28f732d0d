# SPDX-License-Identifier: BSD-3-Clause
# Who waits for whom.
test_programs += \
  tests/health/test_waits

tests_health_test_waits_CPPFLAGS = $(suite_cppflags)
tests_health_test_waits_LDADD = $(suite_ldadd)
