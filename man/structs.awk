# SPDX-License-Identifier: BSD-3-Clause
# structs.awk - prints a manual page with its structs as epx.h has them now: those between a line
# .\" EPX_NAME of epx.h, by structs.awk and the next .EE. Comments are broken to fit a terminal of
# 80 columns. usage: awk -f structs.awk include/epx.h PAGE

BEGIN { columns = 73 }

function fail(message)
{
    print "structs.awk: " FILENAME ":" FNR ": " message > "/dev/stderr"
    failed = 1
    exit 1
}

# Text as roff that prints it.
function roff(text)
{
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/'/, "\\(aq", text)
    return text
}

NR == FNR && /^typedef struct EPX_[A-Za-z_]+ \{$/ {
    name = $3
    text[name] = $0 "\n"
    num = widest = 0
    next
}

NR == FNR && name != "" && /^}/ {
    for (i = 1; i <= num; i++)
        text[name] = text[name] line_of(member[i], comment[i])
    text[name] = text[name] roff($0) "\n"
    name = ""
    next
}

NR == FNR && name != "" {
    if ($0 !~ /^    [A-Za-z].*;( +\/\* .* \*\/)?$/)
        fail("not a member and a comment on one line")
    num++
    member[num] = comment[num] = $0
    sub(/;.*/, ";", member[num])
    if (!sub(/^.*\/\* /, "", comment[num]))
        comment[num] = ""
    widest = length(member[num]) > widest ? length(member[num]) : widest
}

NR == FNR { next }

# A member with its comment behind it, on as many lines as that takes.
function line_of(declaration, words,    lines, line, count, word, i)
{
    if (words == "")
        return roff(declaration) "\n"
    line = sprintf("%-" widest "s /*", declaration)
    count = split(words, word, " ")
    for (i = 1; i <= count; i++) {
        # the last word but one stays with the end of the comment
        if (length(line " " word[i] (i == count - 1 ? " */" : "")) > columns) {
            lines = lines roff(line) "\n"
            line = sprintf("%" (widest + 3) "s", "")
        }
        line = line " " word[i]
    }
    return lines roff(line) "\n"
}

skipping {
    skipping = $0 != ".EE"
    next
}

{ print }

/^\.\\" EPX_[A-Za-z_]+ of epx\.h, by structs\.awk$/ {
    if (!($2 in text))
        fail("epx.h has no struct " $2)
    printf ".EX\n%s.EE\n", text[$2]
    skipping = 1
}

END { exit failed }
