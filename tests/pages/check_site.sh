#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The site of `make html' has all pages, no link in it is dead, and every page is linked to; each
# tells the version, has its contents, and is between the pages that it names as previous and next;
# programs stand there as they are in their files, and names as they are written. What is planted is
# found.
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

displays() {
    awk -v kind="$1" -f "$srcdir/tests/pages/displays.awk" "$2"
}

# lost PAGE < DISPLAYS - prints those that the page of the site does not show.
lost() {
    displays html "$work/site/$1" >"$work/shown"
    awk 'BEGIN { RS = "\f" } NR == FNR { shown[$0]; next } !($0 in shown)' "$work/shown" -
}

# shows PAGE SOURCE KIND - the page has each display of its source.
shows() {
    displays "$3" "$2" >"$work/displays"
    num_displays=$((num_displays + $(tr -dc '\f' <"$work/displays" | wc -c)))
    lost "$1" <"$work/displays" >"$work/lost"
    [ ! -s "$work/lost" ] || {
        cat "$work/lost" >&2
        die "$1 does not show that as it is"
    }
}

# Each program and what it prints, from its own file.
shows_file() {
    { cat "$2" && printf '\f'; } | sed 's/\\/\\/g' | awk 'BEGIN { RS = "\f" }
        { sub(/\n+$/, ""); if ($0 != "") printf "%s\f", $0 }' | lost "$1" >"$work/lost"
    [ ! -s "$work/lost" ] || die "$1 does not show $2 as it is"
}

text_of() {
    tr '\n' ' ' <"$1" | sed 's/<[^>]*>//g; s/&amp;/\&/g; s/&lt;/</g'
}

# Names with underlines in a text in Markdown, links and programs aside, are names on its page.
has_names() {
    text_of "$work/site/$1" >"$work/text"
    sed 's/](\([^)]*\))/]/g; s/!\[[^]]*\]//g; s/<!--.*-->//' "$2" |
        grep -oE '[A-Za-z0-9]+(_[A-Za-z0-9]+)+' | sort -u | while read -r word; do
        grep -qF "$word" "$work/text" || echo "$word"
    done >"$work/lost"
    [ ! -s "$work/lost" ] || die "$1 does not have these names: $(cat "$work/lost")"
}

# Each page is the next of its previous page, and but for the first and the last all have both.
neighbours() {
    awk -F '"' '/^<nav class="site">/ && !(FILENAME in seen) {
            seen[FILENAME]
            for (i = 2; i < NF; i++) {
                if ($i == "prev" || $i == "next") {
                    path = FILENAME
                    sub(/[^\/]*$/, "", path)
                    path = path $(i + 2)
                    while (sub(/[^\/.]+\/\.\.\//, "", path))
                        ;
                    print $i, FILENAME, path
                }
            }
        }' "$@"
}

check_order() {
    (cd "$work/site" && neighbours man/*.html ./*.html docs/*.html docs/*/*.html \
        examples/python/*.html | sed 's,\./,,g') >"$work/neighbours"
    first=man/epx.7.html
    : >"$work/chain"
    while [ -n "$first" ]; do
        echo "$first" >>"$work/chain"
        next=$(awk -v page="$first" '$1 == "next" && $2 == page { print $3 }' "$work/neighbours")
        [ -z "$next" ] || grep -qxF "prev $next $first" "$work/neighbours" ||
            die "$next is behind $first, which is not its previous page"
        [ "$(wc -l <"$work/chain")" -lt 1000 ] || die "pages follow each other in a circle"
        first=$next
    done
    for page in "$srcdir"/man/*.[137] "$top_builddir"/man/*.[137]; do
        [ ! -f "$page" ] || awk '$1 == ".TH" { print "man/" $2 "." $3 ".html"; exit }' "$page"
    done | sort -u >"$work/wanted"
    sed 's/\.md$/.html/' "$work/texts" >>"$work/wanted"
    sort "$work/wanted" >"$work/sorted"
    sort "$work/chain" | diff "$work/sorted" - >&2 ||
        die "pages (<) and those that follow each other from epx(7) on (>) differ"
}

# A page with three sections has links to them; all pages tell the version.
check_head() {
    page=$work/site/$1
    grep -q "^<nav class=\"site\">.*>EPX $version</a>" "$page" || die "$1 does not tell the version"
    awk '{ text = text $0 " " }
        END {
            contents = text
            if (!sub(/.*<nav class="contents">/, "", contents))
                contents = ""
            sub(/<\/nav>.*/, "", contents)
            while (match(text, /<h[1-3] [^>]*id="[^"]*"/)) {
                place = substr(text, RSTART, RLENGTH)
                text = substr(text, RSTART + RLENGTH)
                sub(/.*id="/, "", place)
                sub(/"/, "", place)
                num++
                found += index(contents, "href=\"#" place "\"") > 0
            }
            num -= manual == 0 # the heading of a whole text
            exit num > 2 && found < num
        }' manual="$(expr "$1" : man/)" "$page" || die "$1 has no contents, or others"
}

# spoil PAGE SCRIPT CHECK... - the check fails after sed has changed the page.
spoil() {
    page=$1 script=$2
    shift 2
    cp "$work/site/$page" "$work/page"
    sed "$script" "$work/page" >"$work/site/$page"
    ! ("$@") >/dev/null 2>&1 || die "$1 says nothing of $page after sed $script"
    mv "$work/page" "$work/site/$page"
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
rm "$work/site/alone.html"

version=$(sed -n 's/^Version: //p' "$top_builddir/epx.pc")
sed -n '/^texts="/,/"$/p' "$srcdir/docs/make_site" | sed 's/^texts=//' | tr -d '"' | tr ' ' '\n' |
    grep . >"$work/texts"
# Every text of a folder of docs/ has a page, too.
(cd "$srcdir" && find docs/*/ -name '*.md') | sort - "$work/texts" | uniq >"$work/all"
mv "$work/all" "$work/texts"
num_displays=0
for page in "$srcdir"/man/*.[137] "$top_builddir"/man/*.[137]; do
    [ -f "$page" ] || continue
    shows "man/$(basename "$page").html" "$page" man
    check_head "man/$(basename "$page").html"
done
while read -r text; do
    shows "${text%.md}.html" "$srcdir/$text" md
    has_names "${text%.md}.html" "$srcdir/$text"
    check_head "${text%.md}.html"
done <"$work/texts"
for file in "$srcdir"/examples/tutorial/*.c "$srcdir"/examples/tutorial/*.txt \
    "$srcdir/examples/first.c"; do
    shows_file man/epx_tutorial.7.html "$file"
done
shows_file README.html "$srcdir/examples/first.c"
check_order
tutorial=man/epx_tutorial.7.html
spoil $tutorial '/^$/d' shows_file $tutorial "$srcdir/examples/first.c"
spoil $tutorial 's,^    ,<br/>&,' shows $tutorial "$top_builddir/man/epx_tutorial.7" man
spoil README.html 's,requests,request,' shows README.html "$srcdir/README.md" md
spoil docs/python.html 's,switch_from_deepep.md<,switch<em>from</em>deepep.md<,' \
    has_names docs/python.html "$srcdir/docs/python.md"
spoil $tutorial "s/>EPX $version</>EPX</" check_head $tutorial
spoil $tutorial 's/"#SEE_ALSO"/"#NAME"/' check_head $tutorial
spoil $tutorial 's/rel="next" href="[^"]*"/rel="next" href="epx.7.html"/' check_order
[ $num_displays -gt 100 ] || die "only $num_displays displays were compared"
echo "$name: $num_displays displays stand on their pages as they are"
