#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# In src, tools and python no units need each other in a circle of any length; a unit is all files
# of one folder with one stem: x.c, x.h, x.cu and x.cuh. A unit needs what it includes, and a module
# of Python what it imports. The glue of Python has one header for all, so a unit of it also needs
# the units whose functions and variables it names.
set -u
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}" || exit 1
find src tools python -type f | sort | awk -v lint=lint_circles "$(cat tests/lint/sources.awk \
    tests/lint/c.awk tests/lint/functions.awk tests/lint/python.awk)"'
FILENAME ~ /^python\/epx\/.*\.py$/ { scan_python($0) }
!is_c(FILENAME) { next }
{ scan_c($0) }
included != "" {
    target = included_file(FILENAME, included)
    if (target != "" && is_c(target))
        add_step(unit_of(FILENAME), unit_of(target), FILENAME ":" FNR)
}
FILENAME ~ /^python\/.*\.c$/ {
    scan_functions()
    note_names()
}
END {
    end_functions()
    for (i = 1; i <= num_uses; i++)
        if ((use_folder[i], use_name[i]) in home)
            add_step(use_unit[i], home[use_folder[i], use_name[i]], use_place[i])
    for (i = 1; i <= num_units; i++)
        report_circle(units[i])
    exit bad
}

# A module is a file, or a folder by its __init__.py; if the name is none, its last word is in one.
function found_import(name, line,   path) {
    path = "python/" name
    gsub(/\./, "/", path)
    while (!((path ".py") in sources) && !((path "/__init__.py") in sources))
        if (!sub(/\/[^\/]*$/, "", path))
            return
    if (!((path ".py") in sources))
        path = path "/__init__"
    add_step(unit_of(FILENAME), path, FILENAME ":" line)
}

function found_parameters(name, line, num) {
}

function found_function(name, line, lines, hidden) {
    found_object(name, line, hidden)
}

# Each of the two libraries of the glue is a folder: one name may stand in both.
function found_object(name, line, hidden) {
    if (!hidden)
        home[folder_of(scanned), name] = unit_of(scanned)
}

function note_names(   words, name) {
    words = code
    gsub(/(struct|enum) [a-z_]+/, "", words)
    while (match(words, /epx_python_[a-z_0-9]+/)) {
        name = substr(words, RSTART, RLENGTH)
        words = substr(words, RSTART + RLENGTH)
        use_folder[++num_uses] = folder_of(FILENAME)
        use_name[num_uses] = name
        use_unit[num_uses] = unit_of(FILENAME)
        use_place[num_uses] = FILENAME ":" FNR
    }
}

# steps[unit, 1..num_steps[unit]] are the other units that it needs.
function add_step(from, to, place) {
    if (from == to || (from, to) in place_of)
        return
    place_of[from, to] = place
    if (!(from in num_steps))
        units[++num_units] = from
    steps[from, ++num_steps[from]] = to
}

# The shortest way from a unit back to itself, if there is one, breadth first: before[unit] is where
# the search came from.
function report_circle(start,   queue, before, head, tail, unit, next_unit, i) {
    queue[tail = 1] = start
    for (head = 1; head <= tail; head++) {
        unit = queue[head]
        for (i = 1; i <= num_steps[unit]; i++) {
            next_unit = steps[unit, i]
            if (!(next_unit in before)) {
                before[next_unit] = unit
                queue[++tail] = next_unit
            }
            if (next_unit == start) {
                print_circle(start, before)
                return
            }
        }
    }
}

# Prints a circle from its first unit by name on, so that it is printed once.
function print_circle(start, before,   unit, to, first, names, places) {
    first = start
    for (unit = before[start]; unit != start; unit = before[unit])
        if (unit < first)
            first = unit
    names = to = first
    do {
        unit = before[to]
        names = unit " -> " names
        places = place_of[unit, to] (places == "" ? "" : ", ") places
        to = unit
    } while (unit != first)
    if (names in printed)
        return
    printed[names] = 1
    match(places, /^[^,]*/)
    complain(substr(places, 1, RLENGTH), "a circle of units: " names " (" places ")")
}
'
