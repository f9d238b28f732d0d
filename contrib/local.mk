# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += \
  autogen.sh \
  contrib/check-install \
  contrib/check-macro \
  contrib/count.sh \
  contrib/make-venv \
  contrib/quickstart \
  contrib/run-tests \
  contrib/setup.sh \
  contrib/steps.sh

installcheck-local:
	@CC='$(CC)' MPIEXEC='$(MPIEXEC)' NM='$(NM)' PKG_CONFIG='$(PKG_CONFIG)' \
	PREFIX='$(DESTDIR)$(prefix)' ACLOCALDIR='$(DESTDIR)$(aclocaldir)' \
	INCLUDEDIR='$(DESTDIR)$(includedir)' LIBDIR='$(DESTDIR)$(libdir)' \
	BINDIR='$(DESTDIR)$(bindir)' VERSION='$(PACKAGE_VERSION)' \
	MPI_CFLAGS='$(MPI_CFLAGS)' MPI_LIBS='$(MPI_LIBS)'; \
	export CC MPIEXEC NM PKG_CONFIG PREFIX ACLOCALDIR INCLUDEDIR LIBDIR BINDIR VERSION \
	  MPI_CFLAGS MPI_LIBS; \
	sh $(srcdir)/contrib/check-install $(srcdir)/examples/first.c && \
	sh $(srcdir)/contrib/check-macro $(srcdir)/examples/first.c
