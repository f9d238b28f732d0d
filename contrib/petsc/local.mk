# SPDX-License-Identifier: BSD-3-Clause
# The plug-in that PETSc loads by -dll_append: stars of type epx.
petsc_sources = \
  contrib/petsc/combine.c \
  contrib/petsc/combine.h \
  contrib/petsc/communicator.c \
  contrib/petsc/communicator.h \
  contrib/petsc/exchange.c \
  contrib/petsc/exchange.h \
  contrib/petsc/places.c \
  contrib/petsc/places.h \
  contrib/petsc/star.h \
  contrib/petsc/star_embed.c \
  contrib/petsc/star_link.c \
  contrib/petsc/star_operations.c \
  contrib/petsc/star_setup.c \
  contrib/petsc/star_type.c \
  contrib/petsc/unit.c \
  contrib/petsc/unit.h
EXTRA_DIST += $(petsc_sources)

# PETSc closes the library before it frees communicators, whose attributes call a function there:
# so the library stays.
if HAVE_PETSC
pkglib_LTLIBRARIES += libepx_petsc.la
endif
libepx_petsc_la_SOURCES = $(petsc_sources)
libepx_petsc_la_CPPFLAGS = $(AM_CPPFLAGS) $(PETSC_CPPFLAGS)
libepx_petsc_la_LIBADD = libepx.la $(PETSC_LIBS) $(MPI_LIBS)
libepx_petsc_la_LDFLAGS = -module -avoid-version -shared -no-undefined -Wl,-z,defs -Wl,-z,nodelete \
  -export-symbols-regex '^PetscDLLibraryRegister_epx_petsc$$'
