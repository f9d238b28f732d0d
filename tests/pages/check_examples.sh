#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The programs of the pages of section 3, as printed, compile without a warning, and print what the
# pages say; examples.awk takes them out. The pages of the calls that make a layer have a program.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
name=check_examples
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"
layer="EPX_Route_tokens EPX_Dispatch EPX_Combine EPX_Dispatch_backward EPX_Combine_backward"

# Pages as a reader sees them: those who print pages show bold by overstriking or by escapes.
printed_by() {
    case $1 in
    mandoc) mandoc -Tutf8 "$2" ;;
    groff) groff -t -man -Tutf8 -P-c "$2" ;;
    esac | sed "s/.$(printf '\b')//g"
}

# What is copied from a page compiles only if quotes and hyphens are not set as typographic ones.
take_programs() {
    for printer in mandoc groff; do
        command -v $printer >/dev/null 2>&1 || continue
        mkdir -p "$work/$printer"
        printed_by $printer "$1" >"$work/page" || die "$printer fails on $1"
        awk -v work="$work/$printer" -f "$srcdir/tests/pages/examples.awk" "$work/page" \
            >"$work/$printer/sessions" || die "$1: its examples cannot be taken out"
        taken=$work/$printer
    done
    [ ! -d "$work/mandoc" ] || [ ! -d "$work/groff" ] ||
        diff -r "$work/mandoc" "$work/groff" >&2 ||
        die "$1: mandoc (<) and groff (>) print different programs"
}

# Not every printer of pages sets these as they stand: \-, \(aq, \(ga, \(ha, \(ti are safe.
refuse_bare_characters() {
    awk '/^\.EX/ { on = 1 } /^\.EE/ { on = 0 }
        on && /(^|[^\\])-|[\047`^~]/ { print FILENAME ":" FNR ": " $0; bad = 1 }
        END { exit bad }' "$1" >&2 ||
        die "$1: an example has a bare hyphen, quote, caret or tilde"
}

build_programs() {
    for source in "$taken"/*.c; do
        [ -f "$source" ] || die "$1: no line \"$ cc NAME.c\" names a program"
        build_program "$source" "${source%.c}"
    done
}

# Lines of one rank have an order among themselves, those of different ranks have none.
run_session() {
    session=$1 program=$2 ranks=$3
    shift 3
    # shellcheck disable=SC2086 # the launcher may have arguments
    launch $MPIEXEC -n "$ranks" "$taken/$program" "$@" >"$work/output" </dev/null ||
        die "$page: ./$program $* fails on $ranks ranks"
    sort -s -t : -k 1,1 "$taken/$session.shown" >"$work/wanted"
    sort -s -t : -k 1,1 "$work/output" | diff "$work/wanted" - >&2 ||
        die "$page: what it shows (<) and what ./$program $* prints on $ranks ranks (>) differ"
    [ -s "$work/wanted" ] || die "$page: a session of $program shows nothing"
    num_sessions=$((num_sessions + 1))
}

check_page() {
    page=$1
    rm -rf "$work/mandoc" "$work/groff"
    refuse_bare_characters "$page"
    take_programs "$page"
    [ -s "$taken/sessions" ] || die "$page: its programs show no session"
    build_programs "$page"
    while read -r line; do
        # shellcheck disable=SC2086 # words
        run_session $line
    done <"$taken/sessions"
}

command -v mandoc >/dev/null 2>&1 || command -v groff >/dev/null 2>&1 ||
    skip "there is neither mandoc nor groff"
use_build
num_sessions=0
for page in $layer; do
    grep -q '^#include <epx\.h>' "$srcdir/man/$page.3" || die "$page.3 has no program"
done
for page in "$srcdir"/man/*.3; do
    [ -L "$page" ] || ! grep -q '^#include ' "$page" || check_page "$page"
done
echo "check_examples: $num_sessions sessions printed what the pages show"
