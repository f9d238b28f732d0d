#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The folder is the layer: base < control < core < kernels < transport < coll < mpi < api; a file
# includes its own and lower ones. The kernels have floors in the same way: args < warp < protocol <
# wires < routing < alltoallv < flows; headers beside these folders lie below them all. What the
# build has is asked in transport/list.c, EPX_ is defined in api/api_*.c.
set -u
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}" || exit 1
find src tools tests examples python -type f | sort | awk -v lint=lint_layers "$(cat \
    tests/lint/sources.awk tests/lint/c.awk tests/lint/functions.awk)"'
BEGIN {
    num_layers = split("base control core kernels transport coll mpi api", layers)
    for (i = 1; i <= num_layers; i++)
        rank["src/" layers[i]] = i
    num_floors = split("args warp protocol wires routing alltoallv flows", floors)
    for (i = 1; i <= num_floors; i++)
        floor["src/kernels/" floors[i]] = i
}

{ in_src = FILENAME ~ /^src\// }
in_src && FNR == 1 && !layer_of(FILENAME) && FILENAME !~ /\/local\.mk$/ {
    complain_here("lies in no layer; the folders of src are the layers")
}
!is_c(FILENAME) { next }
{ scan_c($0) }
included != "" { check_include(included_file(FILENAME, included)) }
in_src && directive ~ /^(el)?if/ && /HAVE_/ && FILENAME != "src/transport/list.c" {
    complain_here("asks for HAVE_..., which only src/transport/list.c does")
}
in_src { scan_functions() }
END {
    end_functions()
    exit bad
}

function layer_of(file,   part) {
    split(file, part, "/")
    return rank[part[1] "/" part[2]] + 0
}

# 0 = beside the folders of src/kernels; -1 = elsewhere, or among the kernels of hosts.
function floor_of(file,   part, parts) {
    parts = split(file, part, "/")
    if (part[1] "/" part[2] != "src/kernels" || part[3] == "host")
        return -1
    return parts == 3 ? 0 : floor["src/kernels/" part[3]] + 0
}

# The folder of a transport that a file lies in, or "".
function transport_of(file,   part) {
    return file ~ /^src\/transport\/.*\// && split(file, part, "/") ? part[3] : ""
}

function check_include(file,   own, other) {
    if (included ~ /^(epx|config|configure_line|watch\/mpi_watch)\.h$/)
        return
    if (included_by == "<") {
        if (file != "")
            complain_here("includes <" included ">; write files of the project in \"\"")
    } else if (file == "") {
        complain_here("includes \"" included "\", which is no path from src or its own tree")
    }
    if (file == "" || !in_src)
        return
    own = transport_of(FILENAME)
    other = transport_of(file)
    if (layer_of(file) > layer_of(FILENAME))
        complain_here("includes " included ", of a higher layer")
    else if (floor_of(FILENAME) >= 0 && floor_of(file) > floor_of(FILENAME))
        complain_here("includes " included ", of a higher floor")
    else if (own != "" && other != "" && other != own && other != "cuda")
        complain_here("includes " included ", of another transport; only cuda is shared")
}

function is_api(file) {
    return file ~ /^src\/api\/api_[a-z_]*\.c$/
}

function found_function(name, line, lines, hidden) {
    if (name ~ /^P?EPX_/) {
        if (!is_api(FILENAME))
            complain(FILENAME ":" line, "defines " name ", which is for src/api/api_*.c")
    } else if (is_api(FILENAME) && !hidden) {
        complain(FILENAME ":" line, "defines " name "; only EPX_ functions are not static here")
    }
}

function found_object(name, line, hidden) {
    if (is_api(FILENAME) && !hidden)
        complain(FILENAME ":" line, "defines " name "; only EPX_ functions are not static here")
}

function found_parameters(name, line, num) {}
'
