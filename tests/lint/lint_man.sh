#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The manual pages are well formed, complete, and agree with epx.h and with the hints.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
header=$srcdir/include/epx.h
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

fail() {
    echo "lint_man: $*" >&2
    status=1
}

if ! command -v mandoc >/dev/null 2>&1; then
    echo "lint_man: skipped, there is no mandoc"
    exit 77
fi

pages() {
    ls "$srcdir"/man/*.[137] "$top_builddir"/man/epx_hints.7 "$top_builddir"/man/epx_tutorial.7
}

# expect_silence WHAT PAGE COMMAND... - what a checker says about a page is a finding.
expect_silence() {
    what=$1 page=$2
    shift 2
    said=$("$@" "$page" 2>&1 >"$work/stdout")
    [ -z "$said" ] || fail "$what: $page
$said"
}

lint_page() {
    said=$(mandoc -Tlint -Wwarning "$1" 2>&1)
    [ -z "$said" ] || fail "$said"
    if command -v groff >/dev/null 2>&1; then
        expect_silence groff "$1" groff -t -ww -man -Tascii
    fi
    if man --version 2>/dev/null | grep -q '^man 2'; then
        expect_silence man "$1" env LC_ALL=C MANPAGER=cat man --warnings -l
    fi
}

# A page as plain text: mandoc shows bold and italic by overstriking.
plain_text() {
    mandoc -Tascii "$1" | sed "s/.$(printf '\b')//g"
}

section() {
    awk -v name="$1" '/^[A-Z]/ { on = $0 == name; next } on'
}

# One line for each function of epx.h: its prototype without white space.
prototypes() {
    awk '/^int EPX_/ { on = 1 } on { printf "%s", $0 } on && /;/ { print ""; on = 0 }' "$header" |
        tr -d ' \t'
}

check_function() {
    function=$(expr "$1" : 'int\(EPX_[A-Za-z_]*\)(')
    page=$srcdir/man/$function.3
    if [ ! -f "$page" ]; then
        fail "$function has no page man/$function.3"
        return
    fi
    plain_text "$page" >"$work/page"
    section NAME <"$work/page" | grep -qw "$function" || fail "$page: NAME lacks $function"
    section SYNOPSIS <"$work/page" | tr -d ' \t\n' | grep -qF "$1" ||
        fail "$page: the prototype of $function is not that of epx.h: $1"
    for name in "THREAD SAFETY" "STREAM SEMANTICS" ERRORS "SEE ALSO"; do
        grep -qx "$name" "$work/page" || fail "$page: no section $name"
    done
}

# No page shows a function that epx.h lacks.
check_synopsis() {
    plain_text "$1" | section SYNOPSIS | tr -d ' \t\n' | tr ';' '\n' |
        sed -n 's/.*\(intEPX_.*\)/\1;/p' >"$work/shown"
    while read -r prototype; do
        grep -qxF "$prototype" "$work/prototypes" ||
            fail "$1: epx.h has no $prototype"
    done <"$work/shown"
}

# Names of the interface that a page speaks of exist, and so do the pages it refers to.
check_names() {
    sed 's/\\f[BIPR]/ /g' "$1" | grep -o 'EPX_[A-Za-z0-9_]*[A-Za-z0-9]' | sort -u |
        grep -vxF -f "$work/names" |
        sed "s|^|lint_man: $1: unknown name |" >"$work/unknown"
    sed -n 's/^\.BR \(E*e*[PpXx]*_*[A-Za-z_]*\) (\([137]\)).*/\1.\2/p' "$1" |
        grep -i '^epx' >"$work/references"
    while read -r reference; do
        [ -f "$srcdir/man/$reference" ] || [ -f "$top_builddir/man/$reference" ] ||
            fail "$1: refers to $reference, which does not exist"
    done <"$work/references"
    if [ -s "$work/unknown" ]; then
        cat "$work/unknown" >&2
        status=1
    fi
}

# Where a page names a section of a page, as in "NODES in epx_transports(7)", it is there; where it
# names a page of ours, that is there, too.
check_prose() {
    plain_text "$1" | tr '\n' ' ' | tr -s ' ' >"$work/prose"
    grep -oE '(EPX_[A-Za-z_]+|epx[a-z_]*)\([137]\)' "$work/prose" | tr '(' . | tr -d ')' |
        while read -r reference; do
            [ -f "$srcdir/man/$reference" ] || [ -f "$top_builddir/man/$reference" ] ||
                echo "$1: speaks of $reference, which does not exist"
        done >"$work/absent"
    grep -oE '[A-Z][A-Z -]*[A-Z] (in|of) epx[a-z_]*\(7\)' "$work/prose" |
        sed 's/\(.*\) [inof]* \(epx[a-z_]*\)(7)/\2.7 \1/' | sort -u |
        while read -r named section; do
            cat "$srcdir/man/$named" "$top_builddir/man/$named" 2>/dev/null |
                grep -qxe ".SH $section" -e ".SH \"$section\"" ||
                echo "$1: $named has no section $section"
        done >>"$work/absent"
    [ ! -s "$work/absent" ] || fail "$(cat "$work/absent")"
}

# Pages that sources and texts speak of are there.
check_sources() {
    (
        cd "$srcdir" || exit 1
        find include src tools python fortran examples contrib docs README.md CONTRIBUTING.md \
            SECURITY.md -type f \( -name '*.[ch]' -o -name '*.cu*' -o -name '*.py' \
            -o -name '*.F90' -o -name '*.md' \) \
            -exec grep -oE '(EPX_[A-Za-z_]+|epx[a-z_]*)\([137]\)' {} +
    ) | sort -u | while IFS=: read -r file reference; do
        page=$(echo "$reference" | tr '(' . | tr -d ')')
        [ -f "$srcdir/man/$page" ] || [ -f "$top_builddir/man/$page" ] ||
            echo "$file: speaks of $reference, which does not exist"
    done >"$work/absent"
    [ ! -s "$work/absent" ] || fail "$(cat "$work/absent")"
}

# Pages show the structs of epx.h as they are; all of those have a page, which says that the shorter
# one of the first release is taken.
check_structs() {
    sed -n 's/^typedef struct \(EPX_[A-Za-z_]*\) {$/\1/p' "$header" >"$work/structs"
    [ -s "$work/structs" ] || fail "no structs found in $header"
    sed 's/int top_k; /long top_k;/' "$header" >"$work/changed.h"
    ! awk -f "$srcdir/man/structs.awk" "$work/changed.h" "$srcdir/man/EPX_Route_create.3" |
        cmp -s - "$srcdir/man/EPX_Route_create.3" || fail "a member that changed is not seen"
    while read -r struct; do
        page=$(grep -lxF ".\\\" $struct of epx.h, by structs.awk" "$srcdir"/man/*.3 | head -n 1)
        if [ -z "$page" ]; then
            fail "no page shows $struct"
            continue
        fi
        awk -f "$srcdir/man/structs.awk" "$header" "$page" | diff "$page" - >&2 ||
            fail "$page (<) has not the struct of epx.h (>); awk -f man/structs.awk makes it"
        ! grep -q "^typedef struct $struct " "$srcdir/tests/abi/epx-0.1.0.h" ||
            grep -q '\(in\|of\) 0\.1\.0' "$page" ||
            fail "$page does not say that $struct of 0.1.0 is taken"
        ! grep -q "less than that of .fB$struct" "$page" ||
            fail "$page says that each smaller $struct is an error"
    done <"$work/structs"
}

known_names() {
    grep -oh 'EPX_[A-Za-z0-9_]*' "$header" "$srcdir/fortran/epx_f08.F90" "$srcdir/m4/epx.m4"
    sed -n 's/.*{"\(epx_[a-z_]*\)".*/\1/p' "$srcdir/src/base/param.c" | tr '[:lower:]' '[:upper:]'
    grep -o '"EPX_TRACE"' "$srcdir/src/base/param.c" | tr -d '"'
}

# epx_hints.7 shows the table of param.c as epx_info prints it, and it alone says which hints may
# differ across ranks: those that the table says.
check_hints() {
    ! grep -q '@HINTS@' "$top_builddir/man/epx_hints.7" || fail "epx_hints.7 has no hints"
    printf '@HINTS@\n' | awk -f "$srcdir/man/hints.awk" "$srcdir/src/transport/list.c" \
        "$srcdir/src/base/param.c" - >"$work/hints" ||
        fail "hints.awk cannot read param.c"
    if [ ! -x "$top_builddir/epx_info" ]; then
        fail "epx_info is not built"
    elif ! "$top_builddir/epx_info" --hints-roff | diff "$work/hints" - >&2; then
        fail "the hints of epx_hints.7 (<) are not those of epx_info (>)"
    fi
    awk 'NR == FNR { hints = hints $0 "\n"; next } { page = page $0 "\n" }
         END { exit !index(page, hints) }' "$work/hints" "$top_builddir/man/epx_hints.7" ||
        fail "man/epx_hints.7 is older than the hints of param.c"
    printf '@PER_RANK@\n@HINTS@\n' | awk -f "$srcdir/man/hints.awk" "$srcdir/src/transport/list.c" \
        "$srcdir/src/base/param.c" - | head -n 1 >"$work/per_rank"
    sed -n 's/^All but \(.*\) must have the same value on all ranks\.$/\1/p' \
        "$top_builddir/man/epx_hints.7" | diff "$work/per_rank" - >&2 ||
        fail "the hints that differ across ranks in param.c (<) and in epx_hints.7 (>) are others"
    [ "$(wc -w <"$work/per_rank")" -gt 1 ] || fail "no hint of param.c may differ across ranks"
    grep -n 'epx_.* same value on all ranks' "$srcdir"/man/*.[137] |
        grep -v 'epx_hints(7)' >"$work/others"
    [ ! -s "$work/others" ] || fail "epx_hints(7) alone says so: $(cat "$work/others")"
}

prototypes >"$work/prototypes"
known_names | sort -u >"$work/names"
[ -s "$work/prototypes" ] || {
    echo "lint_man: no functions found in $header" >&2
    exit 1
}
pages >"$work/pages" || fail "pages are missing"
while read -r page; do
    lint_page "$page"
    check_synopsis "$page"
    check_names "$page"
    check_prose "$page"
done <"$work/pages"
while read -r prototype; do
    check_function "$prototype"
done <"$work/prototypes"
check_sources
check_structs
check_hints
exit $status
