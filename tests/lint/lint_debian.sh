#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# debian/ is of the version in configure.ac, and its list of symbols names the functions of epx.h
# and what the Fortran module calls: all of them and nothing else, each since no later version. Each
# module that is built is in a package.
set -u
cd "${srcdir:-.}" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

version=$(sed -n 's/^AC_INIT(\[epx\], \[\([^]]*\)\].*)/\1/p' configure.ac)
packaged=$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)
if [ -z "$version" ] || [ "$packaged" != "$version" ]; then
    echo "debian/changelog:1: version $packaged, in configure.ac $version" >&2
    exit 1
fi

{
    sed -n 's/^int \(P\{0,1\}EPX_[A-Za-z_]*\)(.*/\1/p' include/epx.h
    sed -n 's/.*bind(C, name="\(epx_f08_[a-z_]*\)").*/\1/p' fortran/epx_f08.F90
} | sort >"$work/declared"
sed -n 's/^ \([A-Za-z0-9_]*\)@Base .*/\1/p' debian/libepx0.symbols | sort >"$work/listed"
[ -s "$work/declared" ] || {
    echo "lint_debian: no functions found in epx.h" >&2
    exit 1
}
diff "$work/declared" "$work/listed" >&2 || {
    echo "lint_debian: epx.h with epx_f08 (<) and debian/libepx0.symbols (>) differ" >&2
    exit 1
}
sed -n 's/.*@Base //p' debian/libepx0.symbols | sort -u | while read -r since; do
    [ "$(printf '%s\n' "$since" "$version" | sort -V | tail -n 1)" = "$version" ] || {
        echo "lint_debian: a symbol is of version $since, later than $version" >&2
        exit 1
    }
done || exit 1

sed -n 's/^pkglib_LTLIBRARIES += \(.*\)\.la$/\1/p' \
    src/local.mk contrib/petsc/local.mk >"$work/modules"
[ -s "$work/modules" ] || {
    echo "lint_debian: no modules found in src/local.mk" >&2
    exit 1
}
while read -r module; do
    grep -qxF "usr/lib/*/epx/$module.so" debian/*.install || {
        echo "lint_debian: $module is in no file debian/*.install" >&2
        exit 1
    }
done <"$work/modules"
