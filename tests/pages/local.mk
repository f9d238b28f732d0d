# SPDX-License-Identifier: BSD-3-Clause
# What pages show is true: programs, what they print and draw, messages, links, and the interface
# of the Fortran module.
page_checks = \
  tests/pages/check_documents.sh \
  tests/pages/check_examples.sh \
  tests/pages/check_picture.sh \
  tests/pages/check_python.sh \
  tests/pages/check_site.sh \
  tests/pages/check_start.sh \
  tests/pages/check_synopsis.sh \
  tests/pages/check_trouble.sh \
  tests/pages/check_tutorial.sh
TESTS += $(page_checks)
EXTRA_DIST += \
  $(page_checks) \
  tests/pages/displays.awk \
  tests/pages/examples.awk \
  tests/pages/links.awk \
  tests/pages/picture.py \
  tests/pages/synopsis.awk \
  tests/support/programs.sh

check_PROGRAMS += tests/pages/trouble
tests_pages_trouble_CPPFLAGS = $(tests_cppflags)
tests_pages_trouble_LDADD = libepx.la $(MPI_LIBS)
