# SPDX-License-Identifier: BSD-3-Clause
# sources.awk - begins every lint: from the names on standard input it takes the sources as the
# files to read. A lint is run with its own name in the variable lint.

BEGIN {
    while (("cat" | getline source) > 0)
        if (is_source(source)) {
            sources[source] = 1
            ARGV[ARGC++] = source
        }
    if (ARGC == 1)
        complain(".", "no sources found")
}

function complain(place, what) {
    print lint ": " place ": " what
    bad = 1
}

function complain_here(what) {
    complain(FILENAME ":" FNR, what)
}

function is_c(file) {
    return file ~ /\.(c|h|cu|cuh)$/
}

# What people wrote: a build in the source tree adds objects, programs, libtool's wrappers of
# programs and libtool's own m4 files.
function is_source(file) {
    if (file ~ /(^|\/)corpus\//)
        return 0
    if (file ~ /\.m4$/)
        return file ~ /\/epx[a-z_]*\.m4$/
    if (name_of(file) ~ /\./)
        return file ~ /\.(c|h|cu|cuh|F90|sh|awk|mk|pml|py|ac|am|in|[1-9])$/
    return is_script(file)
}

function is_script(file,   line, i, yes) {
    yes = (getline line < file) > 0 && line ~ /^#!/
    for (i = 2; yes && i <= 5 && (getline line < file) > 0; i++)
        yes = line !~ /temporary wrapper script/
    close(file)
    return yes
}

function folder_of(file) {
    sub(/\/[^\/]*$/, "", file)
    return file
}

function name_of(file) {
    sub(/.*\//, "", file)
    return file
}

# A unit is all files of one folder with one stem: x.c, x.h, x.cu and x.cuh.
function unit_of(file) {
    sub(/\.[a-z]*$/, "", file)
    return file
}
