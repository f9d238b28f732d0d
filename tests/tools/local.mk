# SPDX-License-Identifier: BSD-3-Clause
tools_tests = \
  tests/tools/check_address.sh \
  tests/tools/check_killed.sh \
  tests/tools/check_messages.sh \
  tests/tools/check_home.sh \
  tests/tools/check_older_gpus.sh \
  tests/tools/check_output.sh \
  tests/tools/check_perf_error.sh \
  tests/tools/check_plot.sh \
  tests/tools/check_scripts.sh \
  tests/tools/check_setup.sh \
  tests/tools/check_sweep.sh \
  tests/tools/check_terminal.sh \
  tests/tools/check_trace.sh
TESTS += $(tools_tests)
EXTRA_DIST += $(tools_tests) tests/tools/checks.sh
