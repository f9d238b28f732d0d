#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# In src and tools no units need each other by what they include, in a circle of any length; a unit
# is all files of one folder with one stem: x.c, x.h, x.cu and x.cuh.
set -u
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}" || exit 1
find src tools python -type f | sort | awk -v lint=lint_circles "$(cat tests/lint/sources.awk \
    tests/lint/c.awk)"'
!is_c(FILENAME) { next }
{ scan_c($0) }
included != "" {
    target = included_file(FILENAME, included)
    if (target != "" && is_c(target))
        add_step(unit_of(FILENAME), unit_of(target), FILENAME ":" FNR)
}
END {
    for (i = 1; i <= num_units; i++)
        report_circle(units[i])
    exit bad
}

# steps[unit, 1..num_steps[unit]] are the other units that it includes.
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
