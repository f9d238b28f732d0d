#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# make install has all texts of docs/, and no link from one installed text to another is dead. The
# ratios in docs/choosing.md are those of the plots. Each row of figures in docs/performance.md
# stands in one line of the notebook. Pages that newcomers read stay short.
set -u
LC_ALL=C
export LC_ALL
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
name=check_documents
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"

# Links of texts to files, a line each: the text, then the file as it is named there.
links() {
    find . -name '*.md' | sort | while read -r text; do
        grep -oE '\]\([^)#:]+' "$text" | sed "s,^](,$text ,"
    done
}

dead_links() {
    links | while read -r text file; do
        [ -e "$(dirname "$text")/$file" ] || echo "$text refers to $file"
    done
}

# "2.2 to 2.7 times": the least and the largest of a plot.
ratios() {
    sed -n 's/.*"peer_ratio": \([0-9.]*\).*/\1/p' "$1" | sort -g |
        awk 'NR == 1 { least = $1 } { largest = $1 }
            END { printf "%.1f to %.1f times", least, largest }'
}

# says WORDS PLOT
says() {
    tr '\n' ' ' <"$srcdir/docs/choosing.md" |
        grep -qF "$1 $(ratios "$srcdir/docs/plots/$2.json") as long" ||
        die "docs/choosing.md does not say \"$1 $(ratios "$srcdir/docs/plots/$2.json")\""
}

says "took MPI" host_layer
# shellcheck disable=SC2016 # backquotes are meant
says '`ncclRecv` took' gpu_layer

# rows PAGE - those of its tables whose cells but the first are figures.
rows() {
    grep -E '^\|[^|]+(\| *[0-9][0-9. ]*)+\|$' "$1"
}

# strange PAGE - its rows of figures that no one line of the notebook has all numbers of.
strange() {
    rows "$1" >"$work/rows"
    cat "$srcdir"/docs/notebook/2*.md | awk '
        function numbers(line, set,    word) {
            split("", set)
            for (; match(line, /[0-9][0-9.]*/); line = substr(line, RSTART + RLENGTH))
                set[substr(line, RSTART, RLENGTH)]
        }
        NR == FNR { row[++num] = $0; next }
        {
            numbers($0, here)
            for (i = 1; i <= num; i++) {
                numbers(row[i], wanted)
                lacks = 0
                for (word in wanted)
                    lacks += !(word in here)
                found[i] += !lacks
            }
        }
        END {
            for (i = 1; i <= num; i++)
                if (!found[i])
                    print row[i]
        }' "$work/rows" -
}

# short PAGE LINES
short() {
    [ "$(wc -l <"$srcdir/$1")" -le "$2" ] ||
        die "$1 has $(wc -l <"$srcdir/$1") lines, more than $2; the rest has pages of its own"
}

short docs/performance.md 150
short docs/architecture.md 250
page=$srcdir/docs/performance.md
[ "$(rows "$page" | wc -l)" -gt 20 ] || die "docs/performance.md has few rows of figures"
strange "$page" >"$work/strange"
[ ! -s "$work/strange" ] || die "no line of docs/notebook has the figures of $(cat "$work/strange")"
sed 's/^\(| layer | .*\)5 |$/\16 |/' "$page" >"$work/changed.md"
[ "$(strange "$work/changed.md" | wc -l)" -eq 1 ] || die "a changed figure is not found"

# An inner make would take the outer one's flags for its own.
(unset MAKEFLAGS MFLAGS MAKELEVEL &&
    make -C "$top_builddir" install-data DESTDIR="$work/root") >"$work/said" 2>&1 ||
    die "make install-data fails: $(tail -n 5 "$work/said")"
documents=$(find "$work/root" -name support.md -path '*/docs/*')
[ -n "$documents" ] || die "docs/support.md is not installed"
cd "$(dirname "$documents")/.." || exit 1
for text in README.md "$srcdir"/docs/*.md "$srcdir"/docs/*/*.md; do
    [ -s "./${text#"$srcdir/"}" ] || die "${text#"$srcdir/"} is not installed"
done
[ "$(links | wc -l)" -gt 20 ] || die "only $(links | wc -l) links found"
dead_links >"$work/dead"
[ ! -s "$work/dead" ] || die "dead links: $(cat "$work/dead")"
echo '[nowhere](nowhere.md)' >>docs/support.md
dead_links | grep -qF 'docs/support.md refers to nowhere.md' || die "a dead link is not found"
