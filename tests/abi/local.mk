# SPDX-License-Identifier: BSD-3-Clause
# Programs of the release before run with the library of this build.
TESTS += tests/abi/check_abi.sh
EXTRA_DIST += \
  tests/abi/check_abi.sh \
  tests/abi/epx-0.1.0.h \
  tests/abi/layout.c \
  tests/abi/libepx-0.1.0.abi \
  tests/abi/old_program.c \
  tests/abi/recorded-0.1.0.txt
