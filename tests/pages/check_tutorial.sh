#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The programs that epx_tutorial(7) shows are those of examples/tutorial/, compile without a
# warning, and print on 2 ranks what the page says; forked.c has ranks of its own, without MPI.
# graph.c is compiled in a build with CUDA, and run where there are GPUs.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
name=check_tutorial
page=$top_builddir/man/epx_tutorial.7
folder=$srcdir/examples/tutorial
status=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"

fail() {
    echo "$name: $*" >&2
    status=1
}

# shows FILE - whether its lines stand in the rendered page, one below the other.
shows() {
    awk 'NR == FNR { text = text $0 "\n"; next }
         { sub(/^       /, ""); page = page $0 "\n" }
         END { exit !index(page, text) }' "$1" "$work/page"
}

# compare_printed - sorted, as ranks print in any order.
compare_printed() {
    sort "$folder/$program_name.txt" >"$work/expected"
    sort "$work/printed" | diff "$work/expected" - >&2 ||
        fail "$program_name.txt (<) and what $program_name prints (>) differ"
}

# The program starts its ranks itself, and is not linked with MPI.
check_forked() {
    program_name=forked
    (mpi_libs='' && build_program "$folder/forked.c" "$work/forked" -D_XOPEN_SOURCE=700) || exit 1
    timeout 120 "$work/forked" >"$work/printed" 2>"$work/told" ||
        fail "forked fails: $(cat "$work/told")"
    compare_printed
}

check_program() {
    program_name=$(basename "$1" .c)
    build_program "$1" "$work/$program_name"
    [ -s "$folder/$program_name.txt" ] || fail "nobody says what $program_name prints"
    # shellcheck disable=SC2086 # the launcher may have arguments
    launch $MPIEXEC -n 2 "$work/$program_name" >"$work/printed" 2>"$work/told" ||
        fail "$program_name fails on 2 ranks: $(cat "$work/told")"
    compare_printed
}

# Ranks may share a GPU, so one is enough.
check_graph() {
    if ! grep -q '^#define HAVE_CUDA 1' "$top_builddir/config.h"; then
        echo "$name: graph.c is neither compiled nor run: built without CUDA"
        return
    fi
    # shellcheck disable=SC2046 # lists of words
    compile "$folder/graph.c" "$work/graph.o" -I"$srcdir/include" \
        $(configured CUDA_CPPFLAGS | sed 's/-I */-isystem /g') || die "graph.c does not compile"
    # shellcheck disable=SC2046
    link_program "$work/graph.o" "$work/graph" $(configured CUDA_LIBS) ||
        die "graph.c does not link"
    if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
        echo "$name: graph.c is not run: there is no GPU"
        return
    fi
    # shellcheck disable=SC2086
    CUDA_MODULE_LOADING=EAGER launch $MPIEXEC -n 2 "$work/graph" >"$work/printed" ||
        fail "graph fails"
    [ "$(grep -c '^rank [01], replay [0-2], token 0: 0.0 ' "$work/printed")" -eq 6 ] ||
        fail "graph prints something else: $(cat "$work/printed")"
}

use_build
[ -f "$page" ] || die "there is no $page"
ls "$folder"/*.c >/dev/null || die "there are no programs in $folder"
if command -v mandoc >/dev/null 2>&1; then
    mandoc -Tascii "$page" | sed "s/.$(printf '\b')//g" >"$work/page"
    for file in "$folder"/*.c "$folder"/*.txt "$srcdir/examples/first.c"; do
        shows "$file" || fail "epx_tutorial(7) does not show $file as it is"
    done
else
    echo "$name: there is no mandoc, so that the page itself is not read"
fi
for file in "$folder"/*.c; do
    case $file in
    */graph.c) check_graph ;;
    */forked.c) check_forked ;;
    *) check_program "$file" ;;
    esac
done
exit $status
