#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The manual pages as man prints them on a terminal of 80 columns: no line is longer, and no mark of
# Markdown is left outside programs. What is planted in a page is found.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

if ! command -v groff >/dev/null 2>&1; then
    echo "lint_print: skipped, there is no groff"
    exit 77
fi

# man gives groff two columns less than the terminal has.
find_long_lines() {
    groff -t -man -Tutf8 -P-c -rLL=78n "$1" | sed "s/.$(printf '\b')//g" |
        LC_ALL=C awk -v page="$1" '
            { gsub(/[\200-\277]/, "") } # bytes that only go on a character
            length > 80 {
                print "lint_print: " page ": printed line " FNR " has " length " columns: " $0
            }'
}

find_markdown() {
    awk -v page="$1" '
        /^\.(EX|nf|TS)/ { shown_as_is = 1 }
        /^\.(EE|fi|TE)/ { shown_as_is = 0 }
        shown_as_is || /^\.\\"/ { next }
        /(^|[ (])[*_][^*_ ]+[*_]([ .,;:)]|$)/ || /`/ || /\*\*/ || /\]\(/ || /^#+ / {
            print "lint_print: " page ":" FNR ": looks like Markdown: " $0
        }' "$1"
}

look_at() {
    find_long_lines "$1"
    find_markdown "$1"
}

# plant TEXT WORDS - these words are said of a page with this text, or, without words, nothing is.
plant() {
    printf '.TH planted 7\n.SH NAME\nplanted \\- a page\n.PP\n%s\n' "$1" >"$work/planted.7"
    look_at "$work/planted.7" >"$work/said"
    if [ -n "$2" ]; then
        grep -qF "$2" "$work/said" || echo "lint_print: nothing is said of: $1"
    else
        cat "$work/said"
    fi
}

long=$(printf '%076d' 0)
{
    for page in "$srcdir"/man/*.[137] "$top_builddir"/man/*.[137]; do
        [ ! -f "$page" ] || [ -L "$page" ] || look_at "$page"
    done
    plant ".EX
$long
.EE" "has 83 columns"
    plant ".EX
${long#000}
.EE" ""
    # shellcheck disable=SC2016 # backquotes are meant
    for text in 'too small */dev/shm*, say' '(*words*)' 'a `name`' 'is **bold**' '[this](that)'; do
        plant "$text" "looks like Markdown"
    done
    plant "takes 4*R*(E + 2) bytes and R*T*B" ""
} >"$work/found"
cat "$work/found" >&2
[ ! -s "$work/found" ]
