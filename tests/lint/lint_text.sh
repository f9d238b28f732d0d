#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every source has its SPDX line among the first three and at most 100 columns; no comment opens
# with words that only what stands before it explains: Of, That of, Those, The same, It and others.
set -u
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}" || exit 1
{
    find src include tools tests examples fortran python m4 contrib man -type f
    ls configure.ac Makefile.am autogen.sh .ci/run 2>/dev/null
} | sort | awk -v lint=lint_text "$(cat tests/lint/sources.awk tests/lint/c.awk)"'
FNR == 1 {
    end_block()
    mark = mark_of(FILENAME)
}
FNR <= 3 && /SPDX-License-Identifier: BSD-3-Clause( \*\/)?$/ { licensed[FILENAME] = 1 }
FILENAME ~ /^man\// { next }
length > 100 { complain_here(length " columns; at most 100") }
is_c(FILENAME) || FILENAME ~ /\.pml$/ {
    scan_c($0)
    for (i = 1; i <= num_comments; i++)
        check_opening(comment_text[i], comment_line[i])
    next
}
{ scan_line_comment() }
END {
    end_block()
    for (i = 1; i < ARGC; i++)
        if (!(ARGV[i] in licensed))
            complain(ARGV[i] ":1", "no SPDX line of BSD-3-Clause among the first three")
    exit bad
}

# What begins a comment where that ends with the line.
function mark_of(file) {
    if (file ~ /\.F90$/)
        return "!+"
    return file ~ /\.(m4|ac)$/ ? "(#+|dnl)" : "#+"
}

# Lines of comment below each other are one, except those that are for programs.
function scan_line_comment(   line) {
    if (match($0, "^[ \t]*" mark) && !/SPDX-License-Identifier|^#!|^[ \t]*# *shellcheck /) {
        if (block_line == 0) {
            block_line = FNR
            block_file = FILENAME
        }
        block = block " " substr($0, RSTART + RLENGTH)
        return
    }
    end_block()
    line = $0
    gsub(/"([^"\\]|\\.)*"|\047[^\047]*\047/, "\"\"", line)
    if (match(line, "[ \t]" mark))
        check_opening(substr(line, RSTART + RLENGTH), FNR)
}

function end_block() {
    if (block_line > 0)
        check_opening_in(block_file, block, block_line)
    block = ""
    block_line = 0
}

function check_opening(words, line) {
    check_opening_in(FILENAME, words, line)
}

# The opening of a header is what follows the name of the file.
function check_opening_in(file, words, line,   opening) {
    sub(/^[ \t*]+/, "", words)
    sub(/^[A-Za-z0-9_.]+ - /, "", words)
    gsub(/[ \t]+\*?[ \t]*/, " ", words)
    opening = "^(Of|That of|Those|The same|[Ll]ikewise|As above|Ditto|This one|It)"
    if (!match(words " ", opening "[^A-Za-z0-9_]"))
        return
    complain(file ":" line, "a comment opens with \"" substr(words, 1, RLENGTH - 1) \
        "\"; it names its subject")
}
'
