# SPDX-License-Identifier: BSD-3-Clause
# functions.awk - finds functions in what c.awk leaves of each line. The lint defines
#   found_parameters(name, line, num)            a list of parameters, of a pointer's type too
#   found_function(name, line, lines, hidden)    a definition: lines in its body; whether static
#   found_object(name, line, hidden)             a variable at file scope, unless it is extern
# and calls scan_functions() after each scan_c($0), and end_functions() in END.
#
# Declarations stand outside of braces and inside those of structs and extern "C", which level
# counts. depth counts the parentheses in a declaration, inner the braces in a function's body, an
# enum or a value.

function scan_functions() {
    if (FNR == 1) {
        end_functions()
        scanned = FILENAME
        conditions = 0
        begin_declaration()
    }
    if (directive == "") {
        rest = code
        while (rest != "")
            if (inner)
                scan_braces()
            else
                scan_declaration()
    } else if (directive_begins) {
        follow_condition()
    }
}

function end_functions() {
    if (level || depth || inner)
        complain(scanned ":1", "braces or parentheses do not match, so functions are not found")
    level = depth = inner = 0
}

function begin_declaration() {
    first = previous = name = object = ""
    words = in_value = is_enum = is_static = is_elsewhere = in_template = in_bounds = 0
}

# Both branches of an #if begin in the same place.
function follow_condition() {
    if (directive ~ /^if/) {
        conditions++
        level_at[conditions] = level
        depth_at[conditions] = depth
        inner_at[conditions] = inner
    } else if (directive ~ /^el/) {
        level = level_at[conditions]
        depth = depth_at[conditions]
        inner = inner_at[conditions]
    } else if (directive == "endif") {
        conditions--
    }
}

function scan_braces(   lines) {
    if (!match(rest, /[{}]/)) {
        rest = ""
        return
    }
    inner += substr(rest, RSTART, 1) == "{" ? 1 : -1
    rest = substr(rest, RSTART + 1)
    if (inner == 0 && body_of != "") {
        lines = FNR - body_line - 1
        found_function(body_of, name_line, lines > 0 ? lines : 0, is_static)
        begin_declaration()
    }
}

function scan_declaration(   token) {
    if (!match(rest, /[A-Za-z_][A-Za-z0-9_]*|[^ \t\r]/)) {
        rest = ""
        return
    }
    token = substr(rest, RSTART, RLENGTH)
    rest = substr(rest, RSTART + RLENGTH)
    if (in_template)
        skip_template(token)
    else if (token == "(")
        open_list()
    else if (token == ")")
        close_list()
    else if (depth > 0)
        scan_parameter(token)
    else if (token == "{")
        open_brace()
    else if (token == "}" || token == ";")
        end_declaration(token)
    else
        scan_word(token)
    previous = token
}

# template <...>: in_template is one more than the angle brackets that are open.
function skip_template(token) {
    if (token == "<")
        in_template++
    else if (token == ">" && --in_template == 1)
        in_template = 0
}

function scan_word(token) {
    if (token == "template")
        in_template = 1
    else if (token == "=")
        in_value = 1
    else if (token == "[")
        in_bounds = 1
    else if (token == "static")
        is_static = 1
    else if (token == "enum")
        is_enum = 1
    else if (token ~ /^(extern|typedef|using)$/)
        is_elsewhere = 1
    if (token ~ /^[A-Za-z_]/ && !in_value && !in_bounds) {
        if (words++ == 0)
            first = token
        object = token
    }
}

function scan_parameter(token) {
    if (token == "[" || token == "]")
        brackets[depth] += token == "[" ? 1 : -1
    else if (brackets[depth] == 0 && (token == "<" || token == ">"))
        angles[depth] += token == "<" ? 1 : -1
    else if (token == "," && angles[depth] == 0)
        commas[depth]++
    else if (token ~ /^[A-Za-z_]/)
        last[depth] = token
}

# Returns the name whose parameters an opening parenthesis begins: the parenthesis stands after a
# name or after what is in parentheses itself, as (*name) or MACRO(name) are.
function owner_of_list() {
    if (in_value)
        return ""
    if (previous == ")")
        return closed
    if (previous !~ /^[A-Za-z_]/ || previous ~ /^[A-Z][A-Z0-9_]*$/)
        return ""
    if (previous ~ /^(__attribute__|__launch_bounds__|__align__|__asm__|alignas|_Alignas)$/)
        return ""
    return previous ~ /^(_Static_assert|static_assert|sizeof|__typeof__|decltype)$/ ? "" : previous
}

function open_list(   owner) {
    owner = owner_of_list()
    depth++
    list_of[depth] = owner
    list_line[depth] = FNR
    commas[depth] = angles[depth] = brackets[depth] = 0
    last[depth] = ""
}

function close_list() {
    closed = last[depth]
    if (list_of[depth] != "") {
        found_parameters(list_of[depth], list_line[depth], commas[depth] + 1)
        if (depth == 1) {
            name = list_of[depth]
            name_line = list_line[depth]
        }
    }
    depth--
}

function open_brace() {
    if (in_value || is_enum || name != "") {
        body_of = in_value ? "" : name
        body_line = FNR
        inner = 1
    } else {
        level++
        begin_declaration()
    }
}

function end_declaration(token) {
    if (token == "}")
        level--
    else if (level == 0 && !is_elsewhere && name == "" && words > 1 &&
             !(words == 2 && first ~ /^(struct|union|enum)$/))
        found_object(object, FNR, is_static)
    begin_declaration()
}
