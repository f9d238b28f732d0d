# SPDX-License-Identifier: BSD-3-Clause
# The Fortran module, which is built and used by a script.
TESTS += tests/fortran/check_fortran.sh
EXTRA_DIST += tests/fortran/check_fortran.sh tests/fortran/fortran.F90
