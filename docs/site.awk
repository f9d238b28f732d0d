# SPDX-License-Identifier: BSD-3-Clause
# site.awk - makes a page of `make html' part of the site: names such as EPX_Wait(3) become links,
# links to texts in Markdown those to their pages, and each page has links to the index, to the
# pages before and behind it, and to its own sections.
# usage: awk -v pages="NAME.SECTION..." -v self=NAME.SECTION -v top=PATH -v page=PATH
#     -v version=VERSION -f site.awk ORDER PAGE.html; the lines of ORDER are PATH TITLE

BEGIN {
    num = split(pages, list, " ")
    for (i = 1; i <= num; i++)
        known[list[i]] = 1
    reference = "(<b>)?(EPX_[A-Za-z_]+|epx(_[a-z_]+)?)(</b>)?\\([137]\\)"
}

NR == FNR {
    path[NR] = $1
    if ($1 == page)
        place = NR
    sub(/^[^ ]* /, "")
    title[NR] = $0
    next
}

{ text = text $0 "\n" }

END {
    text = without_permalinks(text)
    around = neighbours()
    sections = contents(text)
    text = with_links(text)
    while (match(text, /href="[^":]*\.md["#]/))
        text = substr(text, 1, RSTART + RLENGTH - 5) ".html" substr(text, RSTART + RLENGTH - 1)
    start = index(text, "<body>") + length("<body>")
    end = index(text, "</body>")
    text = substr(text, 1, start - 1) "\n" around substr(text, start, end - start) around \
        substr(text, end)
    mark = self == "" ? "</h1>" : "</table>"
    start = index(text, mark) + length(mark)
    printf "%s\n%s%s", substr(text, 1, start - 1), sections, substr(text, start)
}

function neighbours()
{
    return "<nav class=\"site\"><a href=\"" top "index.html\">EPX " version "</a>" \
        neighbour(place - 1, "prev", "previous") neighbour(place + 1, "next", "next") "</nav>\n"
}

function neighbour(other, relation, word)
{
    if (!(other in path))
        return ""
    return " <span>" word ": <a rel=\"" relation "\" href=\"" top path[other] "\">" title[other] \
        "</a></span>"
}

# The sections of a page and what is in them; the heading of a whole text is none.
function contents(rest,    item, items, num, level)
{
    while (match(rest, /<h[1-3][^>]* id="[^"]*"[^>]*>/)) {
        item = substr(rest, RSTART, RLENGTH)
        level = substr(item, 3, 1) - (self == "")
        rest = substr(rest, RSTART + RLENGTH)
        sub(/.* id="/, "", item)
        sub(/".*/, "", item)
        if (level < 1 || level > 2)
            continue
        items = items "<li class=\"level" level "\"><a href=\"#" item "\">" \
            plain(substr(rest, 1, index(rest, "</h") - 1)) "</a></li>\n"
        num++
    }
    return num > 2 ? "<nav class=\"contents\"><ul>\n" items "</ul></nav>\n" : ""
}

function plain(html)
{
    gsub(/<[^>]*>/, "", html)
    gsub(/[ \n]+/, " ", html)
    return html
}

# A heading that is a link to itself could be no link to the page that it names.
function without_permalinks(text,    done, rest, content, end)
{
    while (match(text, /<a class="permalink" href="[^"]*">/)) {
        rest = substr(text, RSTART + RLENGTH)
        end = index(rest, "</a>")
        content = substr(rest, 1, end - 1)
        if (content ~ reference)
            done = done substr(text, 1, RSTART - 1) content
        else
            done = done substr(text, 1, RSTART + RLENGTH - 1) content "</a>"
        text = substr(rest, end + 4)
    }
    return done text
}

function with_links(text,    done, found, name)
{
    while (match(text, reference)) {
        found = substr(text, RSTART, RLENGTH)
        done = done substr(text, 1, RSTART - 1)
        text = substr(text, RSTART + RLENGTH)
        name = found
        gsub(/<\/?b>|\)/, "", name)
        sub(/\(/, ".", name)
        if (known[name] && name != self)
            found = "<a href=\"" top "man/" name ".html\">" found "</a>"
        done = done found
    }
    return done text
}
