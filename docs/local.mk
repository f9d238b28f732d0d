# SPDX-License-Identifier: BSD-3-Clause
# `make html' makes one site of all pages, html/index.html.
EXTRA_DIST += \
  docs/make_site \
  docs/site.awk \
  docs/site.css

html-local: $(dist_man_MANS) $(nodist_man_MANS)
	$(SHELL) $(srcdir)/docs/make_site $(srcdir) . html
	@echo "the site is html/index.html"

clean-html:
	rm -rf html
clean-local: clean-html
.PHONY: clean-html
