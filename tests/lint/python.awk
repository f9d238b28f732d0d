# SPDX-License-Identifier: BSD-3-Clause
# python.awk - finds what a module of Python imports, at any level of the file, but for what only a
# checker of types imports. The lint defines
#   found_import(name, line)   a module, or what is taken from one: epx._core or epx._core.Code
# and calls scan_python($0). Strings are left out, and a statement may have several lines.

function scan_python(line,   raw) {
    if (FNR == 1) {
        in_string = statement = ""
        depth_of_statement = 0
        types_behind = -1
    }
    if (statement == "") {
        statement_line = FNR
        match(line, /^ */)
        statement_indent = RLENGTH
    }
    raw = line
    while (line != "")
        line = in_string == "" ? scan_outside(line) : scan_string(line)
    if (sub(/\\$/, " ", statement) || in_string != "" || depth_of_statement > 0) {
        statement = statement " "
        return
    }
    gsub(/^ +| +$/, "", statement)
    if (statement != "")
        end_statement()
    statement = ""
}

# Each of these takes the beginning off the line and returns the rest.
function scan_string(line,   end) {
    end = index(line, in_string)
    if (end == 0)
        return ""
    line = substr(line, end + length(in_string))
    in_string = ""
    return line
}

function scan_outside(line,   mark) {
    if (!match(line, /#|"""|'''|["']/)) {
        add_to_statement(line)
        return ""
    }
    mark = substr(line, RSTART, RLENGTH)
    add_to_statement(substr(line, 1, RSTART - 1))
    line = substr(line, RSTART)
    if (mark == "#")
        return ""
    add_to_statement("\"\"")
    if (length(mark) == 3) {
        in_string = mark
        return substr(line, 4)
    }
    match(line, mark == "\"" ? "^\"([^\"\\\\]|\\\\.)*\"?" : "^'([^'\\\\]|\\\\.)*'?")
    return substr(line, RLENGTH + 1)
}

function add_to_statement(text,   counted) {
    statement = statement text
    counted = text
    depth_of_statement += gsub(/[([{]/, "", counted)
    depth_of_statement -= gsub(/[])}]/, "", counted)
}

function end_statement(   parts, num, i) {
    if (statement_indent > types_behind && types_behind >= 0)
        return
    types_behind = statement ~ /^if (typing\.)?TYPE_CHECKING *:/ ? statement_indent : -1
    num = split(statement, parts, / *; */)
    for (i = 1; i <= num; i++)
        find_imports(parts[i])
}

function find_imports(part,   module, names, num, i) {
    if (part !~ /^(from|import)[ .]/)
        return
    if (match(part, /^from +[^ ]+ +import/)) {
        module = substr(part, 1, RLENGTH)
        gsub(/^from +| +import$/, "", module)
        module = absolute(module)
        part = substr(part, RLENGTH + 1)
    } else {
        sub(/^import/, "", part)
    }
    gsub(/[()]/, " ", part)
    num = split(part, names, ",")
    for (i = 1; i <= num; i++) {
        sub(/^ +/, "", names[i])
        sub(/ .*/, "", names[i])
        if (names[i] != "")
            found_import(module names[i], statement_line)
    }
}

# A module as others call it, with a dot behind it: one dot before its name is the folder of this
# file, each further one the folder above.
function absolute(module,   folder) {
    if (module !~ /^\./)
        return module "."
    folder = folder_of(FILENAME)
    sub(/^python\//, "", folder)
    sub(/^\./, "", module)
    while (sub(/^\./, "", module))
        folder = folder_of(folder)
    gsub(/\//, ".", folder)
    return folder "." (module == "" ? "" : module ".")
}
