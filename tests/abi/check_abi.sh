#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A program of 0.1.0 runs unchanged with the library of this build: its header is kept here, with
# what its library exported (recorded-0.1.0.txt) and abidw's description of it. Versions that are
# told in several files are one.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
name=check_abi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"
abi=$srcdir/tests/abi
recorded=$abi/recorded-0.1.0.txt
header=$srcdir/include/epx.h
library=$top_builddir/.libs/libepx.so

check_versions() {
    version=$(configured PACKAGE_VERSION)
    told=$(sed -n 's/^#define EPX_VERSION_[A-Z]* //p' "$header" | paste -s -d . -)
    [ "$told" = "$version" ] || die "epx.h has version $told, configure $version"
    told=$(sed -n 's/^EPX \([0-9.]*\)$/\1/p' "$srcdir/NEWS" | head -n 1)
    [ "$told" = "$version" ] || die "NEWS begins with version $told, not $version"
    told=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$srcdir/python/epx/__init__.py")
    [ "$told" = "$version" ] || die "epx.__version__ is $told, not $version"
}

# What a header declares, one thing a line: prototypes without white space, and constants.
declarations() {
    awk '/^int P?EPX_/ { on = 1 } on { printf "%s", $0 } on && /;/ { print ""; on = 0 }' "$1" |
        tr -d ' \t'
    sed -n '/VERSION_M\|VERSION_PATCH/d; s/^#define \(EPX_[A-Z0-9_]* [^ ]*\).*/\1/p' "$1" |
        grep -v '_INIT '
    grep '^typedef [^{]*;$' "$1"
}

# all_in FILE FILE WHAT - every line of the first, which is not empty, is one of the second.
all_in() {
    [ -s "$1" ] || die "nothing found of $3"
    sort "$1" >"$work/first"
    sort "$2" | comm -23 "$work/first" - >"$work/lost"
    [ ! -s "$work/lost" ] || {
        cat "$work/lost" >&2
        die "$3 of 0.1.0 are changed or lost"
    }
}

check_declarations() {
    declarations "$work/include/epx.h" >"$work/old"
    declarations "$header" >"$work/new"
    all_in "$work/old" "$work/new" "declarations"
}

check_symbols() {
    NM=${NM:-$(configured NM)}
    ${NM:-nm} -D --defined-only "$library" | awk '{ sub(/@.*/, "", $NF); print $NF }' >"$work/new"
    sed -n 's/^symbol //p' "$recorded" >"$work/old"
    if [ "$(configured EPX_PROFILING)" = no ]; then
        sed -i '/^PEPX_/d' "$work/old"
    fi
    all_in "$work/old" "$work/new" "symbols"
}

# layout HEADERS - members of its epx.h where the record has them; structs may be longer.
layout() {
    compile "$abi/layout.c" "$work/layout.o" -I"$1" || die "layout.c does not compile with $1"
    link_program "$work/layout.o" "$work/layout" || die "layout.c does not link"
    "$work/layout"
}

check_layouts() {
    layout "$work/include" >"$work/kept" || die "layout.c fails"
    if [ "$(sed -n 's/^member EPX_Route_view.slots [0-9]* //p' "$work/kept")" != 8 ]; then
        echo "check_abi: layouts are not compared, they are recorded for pointers of 64 bits"
        return
    fi
    grep '^struct\|^member' "$recorded" | diff - "$work/kept" >&2 ||
        die "the record (<) and the kept header (>) differ"
    layout "$srcdir/include" >"$work/layouts" || die "layout.c fails"
    grep '^member' "$work/kept" >"$work/old"
    grep '^member' "$work/layouts" >"$work/new"
    all_in "$work/old" "$work/new" "members"
    grep '^struct' "$work/kept" | while read -r _ struct size; do
        now=$(sed -n "s/^struct $struct //p" "$work/layouts")
        [ "$now" -ge "$size" ] || die "$struct has become shorter: $now bytes, not $size"
    done || exit 1
}

# The library of 0.1.0 as the linker sees it: its name and its symbols, with nothing in them.
make_old_library() {
    sed -n 's/^symbol \([A-Za-z0-9_]*\)$/int \1(void);\nint \1(void) { return 0; }/p' \
        "$recorded" >"$work/old_library.c"
    # shellcheck disable=SC2086 # lists of words
    $CC $cflags -shared -fPIC -Wl,-soname,libepx.so.0 -o "$work/libepx.so" "$work/old_library.c"
}

check_program() {
    compile "$abi/old_program.c" "$work/old.o" -I"$work/include" ||
        die "old_program.c does not compile with the header of 0.1.0"
    make_old_library || die "no library with the symbols of 0.1.0 can be linked"
    # shellcheck disable=SC2086
    $CC $cflags -o "$work/old" "$work/old.o" "$work/libepx.so" $mpi_libs ||
        die "old_program.c does not link with the symbols of 0.1.0"
    for ranks in 1 2; do
        # shellcheck disable=SC2086 # the launcher may have arguments
        LD_LIBRARY_PATH=$top_builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
            launch $MPIEXEC -n $ranks "$work/old" >"$work/printed" </dev/null ||
            die "a program of 0.1.0 fails on $ranks ranks"
        [ "$(tail -n 1 "$work/printed")" = " No Errors" ] ||
            die "a program of 0.1.0 ended early on $ranks ranks"
    done
}

# Structs that start with their size may grow at their end, which abidiff tells as members inserted;
# all else that it tells breaks programs. It needs what -g writes.
run_abidiff() {
    kept=$abi/libepx-0.1.0.abi
    command -v abidiff >/dev/null 2>&1 || {
        echo "check_abi: abidiff is not run, it is not here (Debian: abigail-tools)"
        return
    }
    case $(uname -m),$(configured MPI_KIND),$(configured EPX_PROFILING) in
    x86_64,openmpi,yes) ;;
    *)
        echo "check_abi: abidiff is not run, 0.1.0 is described for x86_64, Open MPI, profiling"
        return
        ;;
    esac
    case " $own_cflags $cflags " in *" -g"*) ;; *)
        echo "check_abi: abidiff is not run, the library is built without -g"
        return
        ;;
    esac
    abidiff --no-added-syms "$kept" "$library" >"$work/said" 2>&1
    [ $(($? & 3)) -eq 0 ] || {
        cat "$work/said" >&2
        die "abidiff fails"
    }
    breaks=' deletion|offset changed|member change|(type|entity|name) changed'
    if ! grep -q '^Functions changes summary: 0 Removed, ' "$work/said" ||
        grep -qE "$breaks" "$work/said"; then
        cat "$work/said" >&2
        die "abidiff finds more than members that structs got at their end"
    fi
    ran_abidiff=", abidiff finds no break"
}

use_build
! grep -q "^dlname=''" "$top_builddir/libepx.la" ||
    skip "the library is not built as a shared one"
[ -z "$(configured SANITIZER)" ] || skip "the program of 0.1.0 has no sanitizer"
mkdir "$work/include"
cp "$abi/epx-0.1.0.h" "$work/include/epx.h"
check_versions
check_declarations
check_symbols
check_layouts
check_program
ran_abidiff=
run_abidiff
echo "check_abi: a program of 0.1.0 runs with $version$ran_abidiff"
