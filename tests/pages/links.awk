# SPDX-License-Identifier: BSD-3-Clause
# links.awk - complains of each link in pages of HTML whose file or place in a file is not there.
# usage: awk -f links.awk FILE...; the files are named by their paths from the top of the site

FNR == 1 {
    flush()
    file = FILENAME
    sub(/^\.\//, "", file)
    pages[file] = 1
    text = ""
}

{ text = text $0 " " }

END {
    flush()
    for (i = 1; i <= num; i++)
        check(from[i], to[i])
    for (page in pages)
        if (page != "index.html" && !(page in named))
            complain("no page links to " page)
    if (!num)
        complain("no links found")
    exit bad
}

function complain(what)
{
    print "dead link: " what
    bad = 1
}

# Finds the places and the links of a page.
function flush(    rest, value)
{
    rest = text
    while (match(rest, /[ ](id|href|src)="[^"]*"/)) {
        value = substr(rest, RSTART + 1, RLENGTH - 2)
        rest = substr(rest, RSTART + RLENGTH)
        if (sub(/^id="/, "", value)) {
            places[file "#" value] = 1
        } else {
            sub(/^(href|src)="/, "", value)
            from[++num] = file
            to[num] = value
        }
    }
}

function check(page, link,    target, place)
{
    if (link ~ /^(https?|mailto):/)
        return
    place = ""
    target = link
    if (match(link, /#/)) {
        place = substr(link, RSTART)
        target = substr(link, 1, RSTART - 1)
    }
    target = target == "" ? page : resolve(page, target)
    if (target != page)
        named[target] = 1
    if (target in pages) {
        if (place != "" && !((target place) in places))
            complain(page " refers to " link ", a place that " target " has not")
    } else if (!is_file(target)) {
        complain(page " refers to " link)
    }
}

function resolve(page, link,    path)
{
    path = page
    if (!sub(/[^\/]*$/, "", path))
        path = ""
    path = path link
    while (sub(/(^|\/)\.\//, "/", path) || sub(/[^\/.][^\/]*\/\.\.\//, "", path))
        ;
    return path
}

function is_file(path,    line, there)
{
    there = (getline line < path) > 0
    close(path)
    return there
}
