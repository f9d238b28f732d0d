# SPDX-License-Identifier: BSD-3-Clause
# Texts are installed as they lie in the tree, so that their links to each other hold. `make html'
# makes one site of all pages, html/index.html.
nobase_dist_doc_DATA += \
  docs/architecture.md \
  docs/architecture.svg \
  docs/architecture/endings.md \
  docs/architecture/grounds.md \
  docs/architecture/memory.md \
  docs/architecture/progress.md \
  docs/architecture/words.md \
  docs/choosing.md \
  docs/deep_ep.md \
  docs/dispatch_combine.svg \
  docs/frameworks.md \
  docs/performance.md \
  docs/waiting.md \
  docs/python.md \
  docs/support.md \
  docs/te.md \
  docs/testing.md \
  docs/trace.png
EXTRA_DIST += \
  docs/architecture.dot \
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
