#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The first program of the README is examples/first.c, compiles without a warning, and prints what
# the README says. The README says where to report a fault and with what, and on which layouts of
# nodes bytes are the same.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
readme=$srcdir/README.md
program=$srcdir/examples/first.c
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

name=lint_readme
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"

# The first block of a language in the README.
block() {
    awk -v fence="\`\`\`$1" '/^```/ && on { exit } on { print } $0 == fence { on = 1 }' "$readme"
}

# paragraphs WORDS - those of the README that have them, a line each.
paragraphs() {
    awk -v words="$1" 'BEGIN { RS = "" } index($0, words) { gsub(/\n/, " "); print }' "$readme"
}

help=$(awk '/^## / { on = $0 == "## Help" } on' "$readme")
for word in epx_trouble epx_info EPX_LOG=info SECURITY.md docs/support.md; do
    echo "$help" | grep -qF "$word" || die "the section Help of $readme does not name $word"
done
paragraphs "same bytes" >"$work/same"
[ -s "$work/same" ] || die "$readme does not say that bytes are the same"
! grep -v 'node' "$work/same" >&2 ||
    die "$readme does not say on which layouts of nodes bytes are the same"

block c >"$work/first.c"
block text >"$work/expected"
[ -s "$work/first.c" ] || die "no C program in $readme"
[ -s "$work/expected" ] || die "$readme does not say what the program prints"
diff "$work/first.c" "$program" >&2 || die "README.md (<) and examples/first.c (>) differ"

use_build
build_program "$program" "$work/first"
# shellcheck disable=SC2086 # the launcher may have arguments
launch $MPIEXEC -n 2 "$work/first" >"$work/printed" || die "the program fails on 2 ranks"
cat "$work/expected" "$work/expected" | sort >"$work/sorted"
sort "$work/printed" | diff "$work/sorted" - >&2 ||
    die "twice what the README says (<) and what 2 ranks print (>) differ"
