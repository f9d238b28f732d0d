# SPDX-License-Identifier: BSD-3-Clause
# c.awk - reads C and CUDA C++ line by line. After scan_c($0) these variables tell of the line
#   code               the line without comments; its strings and characters are empty
#   directive          the preprocessor's directive that the line begins or goes on with, or ""
#   directive_begins   whether the line begins the directive
#   included           the name in an #include, or ""; included_by is the mark before it, " or <
#   num_comments       comments that end here: comment_text[i], from comment_line[i] on

function scan_c(line,   raw) {
    if (FNR == 1)
        in_comment = goes_on = after_line_comment = 0
    raw = line
    code = text = ""
    num_comments = 0
    line_comment = 0
    while (line != "")
        line = in_comment ? scan_comment(line) : scan_code(line)
    after_line_comment = line_comment
    scan_directive(raw)
}

# Each of these takes the beginning off the line and returns the rest.
function scan_comment(line,   end) {
    end = index(line, "*/")
    if (end == 0) {
        comment = comment " " line
        return ""
    }
    in_comment = 0
    end_comment(comment " " substr(line, 1, end - 1), comment_begins)
    return substr(line, end + 2)
}

function scan_code(line,   mark) {
    if (!match(line, /\/\*|\/\/|["']/)) {
        keep(line, line)
        return ""
    }
    keep(substr(line, 1, RSTART - 1), substr(line, 1, RSTART - 1))
    mark = substr(line, RSTART, RLENGTH)
    line = substr(line, RSTART)
    if (mark == "/*") {
        keep(" ", " ")
        in_comment = 1
        comment = ""
        comment_begins = FNR
        return substr(line, 3)
    }
    if (mark == "//") {
        line_comment = code ~ /^[ \t]*$/
        if (!line_comment || !after_line_comment)
            end_comment(substr(line, 3), FNR)
        return ""
    }
    if (!match(line, mark == "\"" ? "^\"([^\"\\\\]|\\\\.)*\"" : "^'([^'\\\\]+|\\\\.[^']*)'")) {
        keep(" ", mark)
        return substr(line, 2)
    }
    keep(mark mark, substr(line, 1, RLENGTH))
    return substr(line, RLENGTH + 1)
}

function keep(of_code, of_text) {
    code = code of_code
    text = text of_text
}

function end_comment(words, begins) {
    comment_text[++num_comments] = words
    comment_line[num_comments] = begins
}

function scan_directive(raw) {
    directive_begins = !goes_on && code ~ /^[ \t]*#/
    if (directive_begins) {
        directive = code
        sub(/^[ \t]*#[ \t]*/, "", directive)
        sub(/[^a-z_].*/, "", directive)
    } else if (!goes_on) {
        directive = ""
    }
    goes_on = directive != "" && (in_comment || raw ~ /\\$/)
    included = included_by = ""
    if (directive_begins && directive == "include" && match(text, /"[^"]*"|<[^>]*>/)) {
        included_by = substr(text, RSTART, 1)
        included = substr(text, RSTART + 1, RLENGTH - 2)
    }
}

# The file of the tree that a file includes by this name: a path from src or from its own tree.
function included_file(file, name,   tree) {
    tree = file
    sub(/\/.*/, "", tree)
    if (("src/" name) in sources)
        return "src/" name
    return (tree "/" name) in sources ? tree "/" name : ""
}
