# SPDX-License-Identifier: BSD-3-Clause
# Tests of what the manual pages show: programs, and the interface of the Fortran module.
page_tests = tests/pages/check_examples.sh tests/pages/check_synopsis.sh
TESTS += $(page_tests)
EXTRA_DIST += \
  $(page_tests) \
  tests/pages/examples.awk \
  tests/pages/synopsis.awk \
  tests/support/programs.sh
