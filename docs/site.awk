# SPDX-License-Identifier: BSD-3-Clause
# site.awk - makes a page of `make html' part of the site: names such as EPX_Wait(3) become links,
# links to texts in Markdown those to their pages, and each page has one to the index.
# usage: awk -v pages="NAME.SECTION..." -v self=NAME.SECTION -v top=PATH -f site.awk PAGE.html

BEGIN {
    num = split(pages, list, " ")
    for (i = 1; i <= num; i++)
        known[list[i]] = 1
    reference = "(<b>)?(EPX_[A-Za-z_]+|epx(_[a-z_]+)?)(</b>)?\\([137]\\)"
}

{ page = page $0 "\n" }

END {
    page = without_permalinks(page)
    page = with_links(page)
    while (match(page, /href="[^":]*\.md["#]/))
        page = substr(page, 1, RSTART + RLENGTH - 5) ".html" substr(page, RSTART + RLENGTH - 1)
    sub(/<body>/, "<body>\n<p class=\"site\"><a href=\"" top "index.html\">EPX</a></p>", page)
    printf "%s", page
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
