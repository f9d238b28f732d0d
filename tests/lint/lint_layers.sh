#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The sources keep to the layers: a file includes only its own layer and those before it in
# base, objects, kernels, coll, api; vendor headers, HAVE_ and public symbols are in their places.
set -u
srcdir=${srcdir:-.}
status=0

fail() {
    echo "lint_layers: $*" >&2
    status=1
}

cd "$srcdir" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

layer() {
    case $1 in
    src/base/*) echo 1 ;;
    src/core/*) echo 2 ;;
    src/kernels/*) echo 3 ;;
    src/transport/* | src/coll/*) echo 4 ;;
    src/api/*) echo 5 ;;
    *) echo 0 ;;
    esac
}

# The file that an #include "..." means, or nothing.
included_file() {
    if [ -f "$(dirname "$1")/$2" ]; then
        echo "$(dirname "$1")/$2"
    elif [ -f "src/$2" ]; then
        echo "src/$2"
    fi
}

check_include() {
    file=$1 name=$2
    case $name in epx.h | config.h) return ;; esac
    target=$(included_file "$file" "$name")
    if [ -z "$target" ]; then
        fail "$file: includes \"$name\", which is not in src"
    elif [ "$(layer "$target")" -gt "$(layer "$file")" ]; then
        fail "$file: includes $target, of a later layer"
    fi
}

quoted_includes() {
    sed -n 's/^[ 	]*#[ 	]*include[ 	]*"\([^"]*\)".*/\1/p' "$1"
}

angle_includes() {
    sed -n 's/^[ 	]*#[ 	]*include[ 	]*[<"]\([^>"]*\)[>"].*/\1/p' "$1"
}

in_cuda_module() {
    case $1 in *.cu | *.cuh) return 0 ;; esac
    find src -name local.mk -exec cat {} + |
        awk '/^libepx_cuda_la_SOURCES/ { on = 1 } on { print } !/\\$/ { on = 0 }' |
        grep -qw "$1"
}

check_vendor() {
    case $2 in
    nccl*)
        case $1 in
        src/transport/nccl/*) ;;
        *) fail "$1: includes $2, which is for src/transport/nccl" ;;
        esac
        ;;
    ucp/* | ucs/* | uct/*)
        case $1 in
        src/transport/ucx/*) ;;
        *) fail "$1: includes $2, which is for src/transport/ucx" ;;
        esac
        ;;
    cuda_errors.h) ;; # our own
    cuda* | cooperative_groups* | nv/*)
        in_cuda_module "$1" || fail "$1: includes $2, which is for .cu files and the CUDA module"
        ;;
    esac
}

check_source() {
    [ "$(layer "$1")" -gt 0 ] || fail "$1: belongs to no layer that lint_layers.sh knows"
    quoted_includes "$1" >"$work/quoted"
    while read -r name; do
        check_include "$1" "$name"
    done <"$work/quoted"
    angle_includes "$1" >"$work/includes"
    while read -r name; do
        check_vendor "$1" "$name"
    done <"$work/includes"
    if [ "$1" != src/transport/list.c ] &&
        grep -En '^[[:space:]]*#[[:space:]]*(el)?if.*HAVE_' "$1" >&2; then
        fail "$1: asks for HAVE_..., which is for src/transport/list.c"
    fi
}

# Names of the functions that a file defines, static ones left out: they start at the margin, and
# the next line at the margin is the brace.
defined_functions() {
    awk '/^[A-Za-z_]/ && !/^(static|typedef|struct|enum|union|extern)[ {]/ ||
         /^struct [a-z_]+ \*?[A-Za-z_]+\(/ { line = $0; next }
         /^{/ && line ~ /\(/ {
             sub(/\(.*/, "", line); sub(/.*[ *]/, "", line); print line; line = "" }' "$1"
}

check_symbols() {
    defined_functions "$1" >"$work/functions"
    while read -r function; do
        case $1,$function in
        src/api/api_*.c,EPX_*) ;;
        src/api/api_*.c,*) fail "$1: defines $function; api files define EPX_ functions alone" ;;
        *,EPX_*) fail "$1: defines $function, which is for src/api/api_*.c" ;;
        esac
    done <"$work/functions"
}

sources() {
    find src -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh'
}

licensed_files() {
    sources
    find include fortran tests tools examples man contrib -type f \( -name '*.[ch]' \
        -o -name '*.F90' -o -name '*.sh' \
        -o -name '*.mk' -o -name '*.awk' -o -name '*.[13]' -o -name '*.in' -o -name '*.txt.in' \)
    find src m4 -name '*.mk' -o -name 'epx*.m4'
    ls configure.ac Makefile.am autogen.sh contrib/quickstart contrib/run-tests
    [ ! -f .ci/run ] || echo .ci/run
}

check_license() {
    head -n 3 "$1" | grep -q 'SPDX-License-Identifier: BSD-3-Clause$' ||
        head -n 3 "$1" | grep -q 'SPDX-License-Identifier: BSD-3-Clause \*/$' ||
        fail "$1: no SPDX line among the first three"
}

sources >"$work/sources"
[ -s "$work/sources" ] || fail "no sources found"
while read -r file; do
    check_source "$file"
    check_symbols "$file"
done <"$work/sources"

licensed_files >"$work/licensed" || fail "files are missing"
while read -r file; do
    check_license "$file"
done <"$work/licensed"

find src include fortran tests tools examples -name '*.c' -o -name '*.F90' -o -name '*.h' \
    -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.mk' >"$work/texts"
while read -r file; do
    awk -v file="$file" 'length > 100 { print "lint_layers: " file ":" FNR ": " length " columns"
                                        bad = 1 } END { exit bad }' "$file" >&2 || status=1
done <"$work/texts"
exit $status
