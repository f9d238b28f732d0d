# SPDX-License-Identifier: BSD-3-Clause
# The plug-in for PETSc, beside PETSc's own types of stars. Programs do not link it.
if HAVE_PETSC
test_programs += tests/petsc/test_star tests/petsc/test_star_uses
check_PROGRAMS += tests/petsc/poisson tests/petsc/time_star
endif

petsc_cppflags = $(tests_cppflags) $(PETSC_CPPFLAGS)
petsc_ldadd = $(PETSC_LIBS) $(MPI_LIBS)
tests_petsc_test_star_CPPFLAGS = $(petsc_cppflags)
tests_petsc_test_star_LDADD = $(petsc_ldadd)
tests_petsc_test_star_SOURCES = \
  tests/petsc/star_pairs.c \
  tests/petsc/star_pairs.h \
  tests/petsc/test_star.c
tests_petsc_test_star_uses_CPPFLAGS = $(petsc_cppflags)
tests_petsc_test_star_uses_LDADD = $(petsc_ldadd)

# The example, as a user builds it.
tests_petsc_poisson_CPPFLAGS = $(petsc_cppflags)
tests_petsc_poisson_LDADD = $(petsc_ldadd)
tests_petsc_poisson_SOURCES = examples/petsc/poisson.c

# How long the operations take, for epx_petsc(7).
tests_petsc_time_star_CPPFLAGS = $(petsc_cppflags)
tests_petsc_time_star_LDADD = $(petsc_ldadd) -lm

petsc_checks = tests/petsc/check_petsc.sh
TESTS += $(petsc_checks)
EXTRA_DIST += $(petsc_checks)
