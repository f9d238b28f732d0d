# SPDX-License-Identifier: BSD-3-Clause
# A rule that matters is a script; planted.sh sees each of them catch what breaks it.
lints = \
  tests/lint/lint_layers.sh \
  tests/lint/lint_vendors.sh \
  tests/lint/lint_circles.sh \
  tests/lint/lint_functions.sh \
  tests/lint/lint_folders.sh \
  tests/lint/lint_text.sh \
  tests/lint/lint_format.sh \
  tests/lint/planted.sh \
  tests/lint/lint_man.sh \
  tests/lint/lint_print.sh \
  tests/lint/lint_headers.sh \
  tests/lint/lint_inject.sh \
  tests/lint/lint_exports.sh \
  tests/lint/lint_python.sh \
  tests/lint/lint_debian.sh \
  tests/lint/lint_spack.sh \
  tests/lint/lint_readme.sh
lint_programs = \
  tests/lint/c.awk \
  tests/lint/functions.awk \
  tests/lint/python.awk \
  tests/lint/sources.awk
TESTS += $(lints)
EXTRA_DIST += $(lints) $(lint_programs) .clang-format
