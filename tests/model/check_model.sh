#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# usage: check_model.sh MODEL.pml
# Spin goes through all states of a model in each of its runs and finds no error; then in the model
# with each planted fault, where it must find one. Comments at the head of a model name them:
#   run: DEFINITION...                    what the model is run with
#   long: DEFINITION...                   the same, of more than seven million states
#   fails with DEFINITION...: FAULT...    faults that break an assertion
#   hangs with DEFINITION...: FAULT...    faults that make ranks wait for ever
# FAULT is defined as FAULT_name. Environment: CC; MODEL_LONG=no leaves out the long runs;
# MODEL_KEEP, a folder that keeps the verifier and the trail of the last search.
set -u
LC_ALL=C
export LC_ALL
model=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") || exit 1
name=$(basename "$1" .pml)
status=0
num_runs=0
num_faults=0

if ! type spin >/dev/null 2>&1; then
    echo "SKIP: $name: there is no spin"
    exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# search DEFINITION... - leaves what Spin and its verifier say in said; fails if there is none.
search() {
    options=
    for definition; do
        options="$options -D$definition"
    done
    rm -rf "$work/search"
    mkdir "$work/search"
    # shellcheck disable=SC2086 # lists of words
    (
        cd "$work/search" || exit 1
        spin -a $options "$model" &&
            ${CC:-cc} "$level" -w -DSAFETY -DCOLLAPSE -DMEMLIM=1400 -o pan pan.c &&
            ./pan -m100000
    ) >"$work/said" 2>&1 && grep -q 'errors: [0-9]' "$work/said"
}

fail() {
    echo "FAIL: $name: $*"
    tail -n 20 "$work/said"
    status=1
}

# Whether the search was whole: neither memory nor depth was too small.
is_whole() {
    ! grep -Eq 'not completed|too small|memory limit|out of memory|hash table is full' "$work/said"
}

# check_run DEFINITION...
check_run() {
    level=-O1
    num_runs=$((num_runs + 1))
    search "$@" || fail "no search with $*"
    grep -q 'errors: 0' "$work/said" || fail "an error with $*"
    is_whole || fail "the search with $* is not whole"
    echo "$name: $*:$(sed -n 's/^ *\([0-9]*\) states, stored.*/ \1 states/p' "$work/said")"
}

# check_fault WORDS-OF-THE-VERIFIER FAULT DEFINITION...
check_fault() {
    words=$1 fault=$2
    shift 2
    level=-O0 # a fault is found before long: most of the time is the compiler's
    num_faults=$((num_faults + 1))
    search "$@" "FAULT_$fault" || fail "no search with $fault and $*"
    grep -q "$words" "$work/said" || fail "planted fault $fault is not found with $*"
    echo "$name: $fault is found:$(sed -n 's/.*(at depth \([0-9]*\))$/ at step \1/p' "$work/said")"
}

# definitions KEY - the lines of the model's head that begin with the key.
definitions() {
    sed -n "s/^ \* $1 *\(.*\)\$/\1/p" "$model"
}

definitions 'run:' >"$work/runs"
[ "${MODEL_LONG-}" = no ] || definitions 'long:' >>"$work/runs"
while read -r line; do
    # shellcheck disable=SC2086 # a list of words
    check_run $line
done <"$work/runs"

# check_faults KEY WORDS-OF-THE-VERIFIER
check_faults() {
    definitions "$1 with" >"$work/faults"
    while IFS=: read -r defined faults; do
        for fault in $faults; do
            # shellcheck disable=SC2086 # a list of words
            check_fault "$2" "$fault" $defined
        done
    done <"$work/faults"
}
check_faults fails 'assertion violated'
check_faults hangs 'invalid end state (at'

# A fault that the model names and nobody plants, or the other way round, tests nothing.
sed -n 's/.*\(FAULT_[A-Z_]*\).*/\1/p' "$model" | sort -u >"$work/planted"
{ definitions 'fails with'; definitions 'hangs with'; } | sed 's/.*: *//' | tr ' ' '\n' |
    sed '/./s/^/FAULT_/' | sort -u >"$work/named"
cmp -s "$work/planted" "$work/named" || fail "faults: $(diff "$work/planted" "$work/named")"
if [ $num_runs -eq 0 ] || [ $num_faults -eq 0 ]; then
    fail "nothing was run"
fi
if [ -n "${MODEL_KEEP:-}" ]; then
    mkdir -p "$MODEL_KEEP" && cp -R "$work/search/." "$MODEL_KEEP"
fi
exit $status
