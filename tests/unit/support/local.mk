# SPDX-License-Identifier: BSD-3-Clause
# The reference of libsuite, against which everything else is compared.
test_programs += tests/unit/support/unit_reference

tests_unit_support_unit_reference_CPPFLAGS = $(unit_cppflags)
tests_unit_support_unit_reference_LDADD = $(unit_ldadd)
