#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The site of `make html' has all pages, no link in it is dead, and every page is linked to. A link
# that is planted dead is found.
set -u
LC_ALL=C
export LC_ALL
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
name=check_site
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"

for tool in mandoc lowdown; do
    command -v $tool >/dev/null 2>&1 || skip "there is no $tool"
done

links() {
    # shellcheck disable=SC2046 # names without white space
    (cd "$work/site" && awk -f "$srcdir/tests/pages/links.awk" $(find . -name '*.html' | sort))
}

# plant TEXT WORDS - the check says these words of a page with this text.
plant() {
    cp "$work/site/index.html" "$work/index"
    echo "$1" >>"$work/site/index.html"
    ! links >"$work/said" || die "nothing is said of $1"
    grep -qF "$2" "$work/said" || die "of $1 is said: $(cat "$work/said")"
    mv "$work/index" "$work/site/index.html"
}

sh "$srcdir/docs/make_site" "$srcdir" "$top_builddir" "$work/site" || die "make_site fails"
for page in "$srcdir"/man/*.[137] "$top_builddir"/man/*.[137]; do
    [ ! -f "$page" ] || [ -s "$work/site/man/$(basename "$page").html" ] || die "$page has no page"
done
links || die "the site has dead links"
grep -q 'href="../man/epx.7.html"' "$work/site/docs/architecture.html" ||
    die "the architecture page has no link to epx(7)"
grep -q 'href="../man/EPX_Wait.3.html"' "$work/site/man/EPX_Dispatch.3.html" ||
    die "EPX_Dispatch(3) has no link to EPX_Wait(3)"
plant '<a href="man/EPX_None.3.html">' 'index.html refers to man/EPX_None.3.html'
plant '<a href="man/epx.7.html#NOWHERE">' 'a place that man/epx.7.html has not'
plant '<img src="docs/none.svg">' 'index.html refers to docs/none.svg'
echo '<p>alone</p>' >"$work/site/alone.html"
! links >"$work/said" || die "nothing is said of a page without links to it"
exit 0
