# SPDX-License-Identifier: BSD-3-Clause
# hints.awk - puts the hints of src/base/param.c in the place of the line @HINTS@ of a manual page,
# in the words and form of `epx_info --hints-roff', and the names of those that may differ across
# ranks in the place of @PER_RANK@; the names of transports are in the list of transports.
# usage: awk -f hints.awk src/transport/list.c src/base/param.c epx_hints.7.in

function fail(message)
{
    print "hints.awk: " FILENAME ":" FNR ": " message > "/dev/stderr"
    failed = 1
    exit 1
}

# The string literals of a text, joined as the compiler does; what follows is left in `rest'.
function strings(text,    joined)
{
    joined = ""
    while (match(text, /^[ \t]*"[^"]*"/)) {
        joined = joined substr(text, index(text, "\"") + 1, RLENGTH - index(text, "\"") - 1)
        text = substr(text, RLENGTH + 1)
    }
    rest = text
    return joined
}

function number(text,    words)
{
    gsub(/^[ \t]+|[ \t]+$/, "", text)
    if (text ~ /^-?[0-9]+$/)
        return text
    if (text == "INT32_MAX")
        return "2147483647"
    if (text ~ /^\(int64_t\)[0-9]+ << [0-9]+$/) {
        split(substr(text, 10), words, " << ")
        return sprintf("%.0f", words[1] * 2 ^ words[2])
    }
    fail("not a number that can be printed: " text)
}

# {"name", "default", "help", words or NULL, min, max, ...
function hint(text,    name, value, help, field, values)
{
    name = strings(substr(text, index(text, "{") + 1))
    value = strings(substr(rest, 2))
    help = strings(substr(rest, 2))
    if (name == "" || value == "" || help == "" || split(substr(rest, 2), field, ",") < 4)
        fail("not a hint: " text)
    gsub(/[ \t]/, "", field[1])
    if (field[1] == "NULL" && number(field[2]) == number(field[3]))
        values = "a text"
    else if (field[1] == "NULL")
        values = number(field[2]) " to " number(field[3])
    else if (field[1] in lists)
        values = lists[field[1]]
    else
        fail("no list " field[1])
    if (text ~ /, *1 *},$/)
        per_rank[++num_per_rank] = "\\fB" name "\\fP"
    gsub(/\\/, "\\e", help)
    hints = hints sprintf(".TP\n\\fB%s\\fP (\\fB%s\\fP)\n%s\nValues: %s; default: %s.\n", name,
                          toupper(name), help, values, value)
}

# static const char *const NAME[] = {"a", "b", NULL};
function list(text,    name)
{
    name = text
    sub(/\[\].*/, "", name)
    sub(/.*[ *]/, "", name)
    sub(/^[^{]*\{/, "", text)
    sub(/, *NULL *\}.*/, "", text)
    gsub(/"/, "", text)
    gsub(/[ \t]+/, " ", text)
    lists[name] = text
}

FNR == 1 {
    file++
}

file < 3 && /^(static )?const char \*const [a-z_]+\[\] =/ {
    text = $0
    while (text !~ /;$/ && (getline line) > 0)
        text = text " " line
    list(text)
}

file == 2 && /^const struct epx_param epx_param_table\[\] =/ {
    text = ""
    while ((getline line) > 0 && line !~ /^};/) {
        text = text line
        if (text ~ /NULL, NULL, NULL/)
            break
        if (text ~ /},$/) {
            hint(text)
            text = ""
        }
    }
}

# "a, b and c"
function per_rank_names(    i, names)
{
    for (i = 1; i <= num_per_rank; i++)
        names = names (i == 1 ? "" : i == num_per_rank ? " and " : ", ") per_rank[i]
    return names
}

file == 3 && $0 != "@HINTS@" {
    sub(/@PER_RANK@/, per_rank_names())
    print
}

file == 3 && $0 == "@HINTS@" {
    printf "%s", hints
    placed = 1
}

END {
    if (!failed && (hints == "" || !placed)) {
        print "hints.awk: no hints, or no place for them" > "/dev/stderr"
        failed = 1
    }
    exit failed
}
