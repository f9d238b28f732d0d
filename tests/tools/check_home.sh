#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Where faults are reported and where the library is at home: set in configure.ac, both are told by
# configure --help, epx.pc and epx_info; not set, nobody tells an empty one.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
name=check_home
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"
reports=faults@home.invalid
home=https://home.invalid/epx

command -v autoconf >/dev/null 2>&1 || skip "there is no autoconf"
use_build

tree=$work/tree
mkdir -p "$tree" "$work/set"
cp -r "$srcdir/m4" "$srcdir/aclocal.m4" "$srcdir/include" "$tree"
chmod -R u+w "$tree"
sed -e "s|^m4_define(\[epx_bugreport\], \[.*\])|m4_define([epx_bugreport], [$reports])|" \
    -e "s|^m4_define(\[epx_url\], \[.*\])|m4_define([epx_url], [$home])|" \
    "$srcdir/configure.ac" >"$tree/configure.ac"
(cd "$tree" && autoconf) >"$work/said" 2>&1 || die "autoconf fails: $(cat "$work/said")"
(cd "$tree" && ./configure --help) >"$work/help" || die "configure --help fails"
grep -qF "Report bugs to <$reports>" "$work/help" || die "configure --help does not tell $reports"
grep -qF "<$home>" "$work/help" || die "configure --help does not tell $home"
grep -q '^URL: @PACKAGE_URL@$' "$srcdir/epx.pc.in" || die "epx.pc has no place for the URL"

sed -e "s|^#define PACKAGE_BUGREPORT .*|#define PACKAGE_BUGREPORT \"$reports\"|" \
    -e "s|^#define PACKAGE_URL .*|#define PACKAGE_URL \"$home\"|" \
    "$top_builddir/config.h" >"$work/set/config.h"
# shellcheck disable=SC2086 # lists of words
$CC $own_cflags -std=gnu11 -I"$work/set" -I"$srcdir/include" -I"$srcdir/src" -I"$srcdir/tools" \
    -I"$srcdir/tests" -I"$top_builddir/tools" $mpi_cflags $cflags -c -o "$work/epx_info.o" \
    "$srcdir/tools/epx_info.c" ||
    die "epx_info.c does not compile"
others=$(find "$top_builddir/tools" -name 'epx_info-*.o' ! -name epx_info-epx_info.o)
# shellcheck disable=SC2086
"$top_builddir/libtool" --silent --tag=CC --mode=link $CC $cflags -o "$work/epx_info" \
    "$work/epx_info.o" $others "$top_builddir/libepx_core.la" \
    "$top_builddir/libepx_mpi_parts.la" $mpi_libs ||
    die "epx_info does not link"
# shellcheck disable=SC2086
launch $MPIEXEC -n 1 "$work/epx_info" >"$work/told" || die "epx_info fails"
grep -qE "^  report to +$reports\$" "$work/told" || die "epx_info does not tell $reports"
grep -qE "^  home +$home\$" "$work/told" || die "epx_info does not tell $home"

# shellcheck disable=SC2086
launch $MPIEXEC -n 1 "$top_builddir/epx_info" >"$work/told" || die "epx_info fails"
! grep -E '^  (report to|home) *$' "$work/told" || die "epx_info tells what is not set"
