# SPDX-License-Identifier: BSD-3-Clause
# texts.awk - puts programs and what they print into a manual page: a line @TEXT FILE@ becomes the
# file as a display, each character as it is. usage: awk -v srcdir=DIR -f texts.awk PAGE.in

function fail(message)
{
    print "texts.awk: " FILENAME ":" FNR ": " message > "/dev/stderr"
    failed = 1
    exit 1
}

# Text as roff that prints it: a hyphen or quote alone would come out as a typographic one.
function roff(text)
{
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/'/, "\\(aq", text)
    gsub(/`/, "\\(ga", text)
    gsub(/\^/, "\\(ha", text)
    gsub(/~/, "\\(ti", text)
    return text ~ /^\./ ? "\\&" text : text
}

function display(file,    line, lines)
{
    print ".PP\n.EX"
    while ((getline line < file) > 0) {
        print roff(line)
        lines++
    }
    close(file)
    if (!lines)
        fail("no text in " file)
    print ".EE\n.nh"
}

/^@TEXT [^ ]+@$/ {
    display(srcdir "/" substr($2, 1, length($2) - 1))
    next
}

{ print }

END {
    exit failed
}
