# SPDX-License-Identifier: BSD-3-Clause
# displays.awk - prints the programs and other displays of a page, each with a form feed behind it:
# of HTML, what a browser shows of each <pre>; of a manual page, what is between .EX and .EE; of a
# text in Markdown, its fenced blocks. usage: awk -v kind=html|man|md -f displays.awk FILE

BEGIN {
    characters["lt"] = "<"
    characters["gt"] = ">"
    characters["quot"] = "\""
    characters["amp"] = "&"
}

kind == "html" { text = text $0 "\n" }

kind == "man" && /^\.EE/ { end() }
kind == "man" && on { display = display printed($0) "\n" }
kind == "man" && /^\.EX/ { on = 1 }

kind == "md" && /^ *```/ {
    if (on)
        end()
    else
        on = 1
    next
}
kind == "md" && on { display = display $0 "\n" }

END {
    while (match(text, /<pre[^>]*>/)) {
        text = substr(text, RSTART + RLENGTH)
        display = shown(substr(text, 1, index(text, "</pre>") - 1)) "\n"
        end()
    }
}

function end()
{
    sub(/^\n/, "", display)
    sub(/\n+$/, "", display)
    printf "%s\f", display
    display = ""
    on = 0
}

# The text of roff that has no requests.
function printed(text)
{
    gsub(/\\&/, "", text)
    gsub(/\\f[BIPR]/, "", text)
    gsub(/\\-/, "-", text)
    gsub(/\\\(aq/, "'", text)
    gsub(/\\\(ga/, "`", text)
    gsub(/\\\(ha/, "^", text)
    gsub(/\\\(ti/, "~", text)
    gsub(/\\e/, "\\", text)
    return text
}

function shown(html)
{
    gsub(/<br *\/?>/, "\n", html)
    gsub(/<[^>]*>/, "", html)
    return decoded(html)
}

function decoded(html,    text, name)
{
    while (match(html, /&(lt|gt|quot|amp|#[0-9]+);/)) {
        name = substr(html, RSTART + 1, RLENGTH - 2)
        text = text substr(html, 1, RSTART - 1) \
            (name in characters ? characters[name] : sprintf("%c", substr(name, 2) + 0))
        html = substr(html, RSTART + RLENGTH)
    }
    return text html
}
