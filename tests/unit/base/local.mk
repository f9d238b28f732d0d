# SPDX-License-Identifier: BSD-3-Clause
test_programs += \
  tests/unit/base/unit_log \
  tests/unit/base/unit_machine \
  tests/unit/base/unit_memory \
  tests/unit/base/unit_param \
  tests/unit/base/unit_stats \
  tests/unit/base/unit_status

tests_unit_base_unit_log_CPPFLAGS = $(unit_cppflags)
tests_unit_base_unit_log_LDADD = $(unit_ldadd)

tests_unit_base_unit_machine_CPPFLAGS = $(unit_cppflags)
tests_unit_base_unit_machine_LDADD = $(unit_ldadd)

tests_unit_base_unit_memory_CPPFLAGS = $(unit_cppflags)
tests_unit_base_unit_memory_LDADD = $(unit_ldadd)

tests_unit_base_unit_param_CPPFLAGS = $(unit_cppflags)
tests_unit_base_unit_param_LDADD = $(unit_ldadd)

tests_unit_base_unit_stats_CPPFLAGS = $(unit_cppflags)
tests_unit_base_unit_stats_LDADD = $(unit_ldadd)

tests_unit_base_unit_status_CPPFLAGS = $(unit_cppflags)
tests_unit_base_unit_status_LDADD = $(unit_ldadd)
