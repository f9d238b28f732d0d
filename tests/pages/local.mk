# SPDX-License-Identifier: BSD-3-Clause
# Tests of what the manual pages show: programs, and the interface of the Fortran module.
TESTS += tests/pages/check_examples.sh
EXTRA_DIST += \
  tests/pages/check_examples.sh \
  tests/pages/examples.awk \
  tests/support/programs.sh
