# SPDX-License-Identifier: BSD-3-Clause
# The Fortran module is installed as source: a compiled one is of use to one compiler alone.
dist_pkgdata_DATA = fortran/epx_f08.F90
