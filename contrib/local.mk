# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += \
  autogen.sh \
  contrib/check-install \
  contrib/quickstart \
  contrib/run-tests \
  contrib/setup.sh

installcheck-local:
	CC='$(CC)' MPIEXEC='$(MPIEXEC)' NM='$(NM)' PKG_CONFIG='$(PKG_CONFIG)' \
	INCLUDEDIR='$(DESTDIR)$(includedir)' LIBDIR='$(DESTDIR)$(libdir)' \
	BINDIR='$(DESTDIR)$(bindir)' VERSION='$(PACKAGE_VERSION)' \
	  sh $(srcdir)/contrib/check-install $(srcdir)/examples/first.c
