# SPDX-License-Identifier: BSD-3-Clause
# A rule that matters is a script.
lints = \
  tests/lint/lint_man.sh \
  tests/lint/lint_layers.sh \
  tests/lint/lint_headers.sh \
  tests/lint/lint_inject.sh \
  tests/lint/lint_exports.sh \
  tests/lint/lint_readme.sh
TESTS += $(lints)
EXTRA_DIST += $(lints)
