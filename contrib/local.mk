# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += \
  autogen.sh \
  contrib/after-install \
  contrib/bare-debian \
  contrib/check-cmake \
  contrib/check-examples \
  contrib/check-install \
  contrib/check-macro \
  contrib/check-packages \
  contrib/check-readme \
  contrib/check-wheel \
  contrib/cmake/EPXConfig.cmake.in \
  contrib/cmake/EPXConfigVersion.cmake.in \
  contrib/compare-nccl \
  contrib/copy-source \
  contrib/count.sh \
  contrib/make-venv \
  contrib/make-wheel \
  contrib/quickstart \
  contrib/relative-path \
  contrib/run-tests \
  contrib/setup.sh \
  contrib/spack/check_recipe.py \
  contrib/spack/spack_repo/epx/packages/epx/package.py \
  contrib/spack/spack_repo/epx/repo.yaml \
  contrib/steps.sh \
  debian/README.source \
  debian/changelog \
  debian/control \
  debian/copyright \
  debian/epx-doc.install \
  debian/epx-tools.install \
  debian/libepx-cuda0.install \
  debian/libepx-dev.install \
  debian/libepx-petsc0.install \
  debian/libepx0.install \
  debian/libepx0.symbols \
  debian/rules \
  debian/source/format \
  debian/tests/control \
  debian/tests/use-epx

# What find_package(EPX) of CMake reads.
cmakedir = $(libdir)/cmake/EPX
nodist_cmake_DATA = \
  contrib/cmake/EPXConfig.cmake \
  contrib/cmake/EPXConfigVersion.cmake
CLEANFILES += $(nodist_cmake_DATA)

$(nodist_cmake_DATA): Makefile contrib/relative-path
	$(AM_V_GEN)$(MKDIR_P) contrib/cmake && \
	include_from_lib=`sh $(srcdir)/contrib/relative-path '$(libdir)' '$(includedir)'` && \
	data_from_lib=`sh $(srcdir)/contrib/relative-path '$(libdir)' '$(pkgdatadir)'` && \
	sed -e 's|[@]libdir@|$(libdir)|' -e 's|[@]cmakedir@|$(cmakedir)|' \
	  -e "s|[@]include_from_lib@|$$include_from_lib|" -e "s|[@]data_from_lib@|$$data_from_lib|" \
	  -e 's|[@]mpicc_path@|$(MPICC_PATH)|g' -e 's|[@]mpi_macro@|$(MPI_MACRO)|g' \
	  -e 's|[@]MPI_NAME@|$(MPI_NAME)|' -e 's|[@]private_libs@|$(UCX_LIBS) $(LIBS)|' \
	  -e 's|[@]PACKAGE_VERSION@|$(PACKAGE_VERSION)|' \
	  -e 's|[@]pointer_bytes@|$(POINTER_BYTES)|g' $(srcdir)/$@.in >$@.tmp && \
	mv -f $@.tmp $@
contrib/cmake/EPXConfig.cmake: contrib/cmake/EPXConfig.cmake.in
contrib/cmake/EPXConfigVersion.cmake: contrib/cmake/EPXConfigVersion.cmake.in

# Under DESTDIR nothing is in its place yet.
install-data-hook:
	@test -n '$(DESTDIR)' || PKG_CONFIG='$(PKG_CONFIG)' $(SHELL) $(srcdir)/contrib/after-install \
	  '$(PACKAGE_VERSION)' '$(prefix)' '$(libdir)' '$(bindir)'

installcheck-local:
	@CC='$(CC)' CXX='$(CXX)' MPIFC='$(MPIFC)' MPIEXEC='$(MPIEXEC)' NM='$(NM)' \
	PKG_CONFIG='$(PKG_CONFIG)' PREFIX='$(DESTDIR)$(prefix)' ACLOCALDIR='$(DESTDIR)$(aclocaldir)' \
	INCLUDEDIR='$(DESTDIR)$(includedir)' LIBDIR='$(DESTDIR)$(libdir)' \
	BINDIR='$(DESTDIR)$(bindir)' EXAMPLEDIR='$(DESTDIR)$(exampledir)' \
	CMAKEDIR='$(DESTDIR)$(cmakedir)' VERSION='$(PACKAGE_VERSION)' \
	MPI_CFLAGS='$(MPI_CFLAGS)' MPI_LIBS='$(MPI_LIBS)' MPI_KIND='$(MPI_KIND)'; \
	export CC CXX MPIFC MPIEXEC NM PKG_CONFIG PREFIX ACLOCALDIR INCLUDEDIR LIBDIR BINDIR \
	  EXAMPLEDIR CMAKEDIR VERSION MPI_CFLAGS MPI_LIBS MPI_KIND; \
	sh $(srcdir)/contrib/check-install $(srcdir)/examples/first.c && \
	sh $(srcdir)/contrib/check-macro $(srcdir)/examples/first.c && \
	sh $(srcdir)/contrib/check-cmake $(srcdir)/examples && \
	sh $(srcdir)/contrib/check-examples
