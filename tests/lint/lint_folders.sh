#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A folder has at most 25 sources, and in src, tests and tools a local.mk; there no two files have
# one name, and in src one stem means one unit, the files of one folder.
set -u
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}" || exit 1
find src tests tools examples fortran python contrib m4 include -type f | sort |
    awk -v lint=lint_folders "$(cat tests/lint/sources.awk)"'
BEGIN {
    for (i = 1; i < ARGC; i++)
        add_file(ARGV[i])
    for (i = 1; i <= num_folders; i++)
        check_folder(folders[i])
    exit
}
END { exit bad }

function add_file(file,   folder) {
    folder = folder_of(file)
    num_files[folder]++
    if (file ~ /^(src|tests|tools)\// && name_of(file) != "local.mk") {
        check_name(file, name_of(file))
        if (file ~ /^src\//)
            check_stem(file, name_of(unit_of(file)))
    }
    for (; !(folder in is_folder); folder = folder_of(folder)) {
        is_folder[folder] = 1
        folders[++num_folders] = folder
    }
}

function check_name(file, name) {
    if (name in named)
        complain(file ":1",
            "has the name of " named[name] "; names are unique in src, tests, tools")
    else
        named[name] = file
}

function check_stem(file, stem) {
    if (!(stem in unit_named))
        unit_named[stem] = unit_of(file)
    else if (unit_named[stem] != unit_of(file))
        complain(file ":1", "has the stem of " unit_named[stem] ".*; a unit lies in one folder")
}

function check_folder(folder) {
    if (num_files[folder] > 25)
        complain(folder, num_files[folder] " sources in one folder; at most 25")
    if (folder ~ /^(src|tests|tools)(\/|$)/ && !((folder "/local.mk") in sources))
        complain(folder, "has no local.mk, which names the files of the folder to the build")
}
'
