# SPDX-License-Identifier: BSD-3-Clause
test_programs += \
  tests/unit/core/unit_handle \
  tests/unit/core/unit_progress \
  tests/unit/core/unit_ready \
  tests/unit/core/unit_request \
  tests/unit/core/unit_waits

tests_unit_core_unit_handle_CPPFLAGS = $(unit_cppflags)
tests_unit_core_unit_handle_LDADD = $(unit_ldadd)

tests_unit_core_unit_progress_CPPFLAGS = $(unit_cppflags)
tests_unit_core_unit_progress_LDADD = $(unit_ldadd)

tests_unit_core_unit_ready_CPPFLAGS = $(unit_cppflags)
tests_unit_core_unit_ready_LDADD = $(unit_ldadd)

tests_unit_core_unit_request_CPPFLAGS = $(unit_cppflags)
tests_unit_core_unit_request_LDADD = $(unit_ldadd)

tests_unit_core_unit_waits_CPPFLAGS = $(unit_cppflags)
tests_unit_core_unit_waits_LDADD = $(unit_ldadd)
