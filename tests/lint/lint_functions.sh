#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# No function and no pointer to one has more than 6 parameters, except those of the public API, of
# src/api/f08.*, and what PETSc's table of a star begins with; no function's body is longer than 50
# lines.
set -u
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}" || exit 1
find src tools python contrib -type f | sort | awk -v lint=lint_functions "$(cat \
    tests/lint/sources.awk tests/lint/c.awk tests/lint/functions.awk)"'
!is_c(FILENAME) { next }
{
    scan_c($0)
    scan_functions()
}
END {
    end_functions()
    exit bad
}

function found_parameters(name, line, num) {
    if (num > 6 && name !~ /^P?EPX_/ && FILENAME !~ /^src\/api\/f08\./ &&
        name !~ /^star_[a-z]*_begin$/)
        complain(FILENAME ":" line, name " has " num " parameters; at most 6, or a struct of them")
}

function found_function(name, line, lines, hidden) {
    if (lines > 50)
        complain(FILENAME ":" line, name " has a body of " lines " lines; at most 50")
    if (level == 0 && FILENAME ~ /^src\/kernels\// && FILENAME !~ /^src\/kernels\/host\//) {
        if (name in home && home[name] != FILENAME)
            complain(FILENAME ":" line, name " is also defined in " home[name])
        home[name] = FILENAME
    }
}

function found_object(name, line, hidden) {}
'
