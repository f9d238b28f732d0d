#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The errors that epx_perf -c prints for combine and dispatch-backward are those of sums that are
# rounded to the datatype as often as epx_combine_partials says, whatever setting the run itself
# has; on the memory of GPUs too, where there are any.
set -u
check=check_perf_error
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
type python3 >/dev/null 2>&1 || skip "there is no python3 to read JSON"

# measure RANKS ARGUMENT... - the results go to the file json.
measure() {
    ranks=$1
    shift
    expect_code 0 launch -n "$ranks" ./epx_perf -c -t 128 -H 64 -i 1 -x 0 --json "$work/json" "$@"
}

# expect_errors DIGITS ROUNDINGS - a number is rounded by at most 2^-DIGITS of itself: once with
# float32 partials, ROUNDINGS times with those of the datatype, which must show.
expect_errors() {
    expect_json "$work/json" "[1 for r in j['results'] for u in [2.0 ** -$1] if
        u / 2 < r['error_partials_float32'] < u * 1.001 and
        ($2 == 1 or r['error_partials_datatype'] > u * 1.1) and
        r['error_partials_datatype'] < $2 * u * 1.01]"
}

# expect_same NAME - the errors are those of an earlier file.
expect_same() {
    expect_json "$work/json" "all(r[name] == e[name]
        for r, e in zip(j['results'], json.load(open('$work/$1'))['results'])
        for name in ['error_partials_datatype', 'error_partials_float32'])"
}

# Everything that a memory can do; the arguments name it.
check_memory() {
    measure 2 combine -T bfloat16 "$@"
    expect_errors 8 2
    mv "$work/json" "$work/first"
    export EPX_COMBINE_PARTIALS=float32
    measure 2 combine -T bfloat16 "$@"
    unset EPX_COMBINE_PARTIALS
    expect_same first
    measure 2 combine -T float16 -l slab "$@"
    expect_errors 11 2
    measure 2 dispatch-backward -T bfloat16 "$@"
    expect_errors 8 2
    measure 2 combine -T bfloat16 -l rank "$@"
    expect_errors 8 1
}

check_report() {
    measure 2 combine -T bfloat16
    expect_line "$work/out" "$(python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))["results"][0]
print(".* 0 +%.1e +%.1e" % (r["error_partials_datatype"], r["error_partials_float32"]))
' "$work/json")"
    expect_line "$work/out" '# .* wrong +err_type +err_f32'
    measure 2 dispatch -T bfloat16
    expect_json "$work/json" "not [name for r in j['results'] for name in r if 'error' in name]"
    ! grep -q err_ "$work/out" || fail "dispatch has errors of sums: $(cat "$work/out")"
    expect_code 0 ./epx_perf --explain
    for column in err_type err_f32; do
        grep -q "^$column " "$work/out" || fail "--explain lacks $column"
    done
}

check_memory
mv "$work/first" "$work/host"
check_report
export EPX_RANKS_PER_NODE=2 # the sum of a node is rounded, too
measure 4 combine -T bfloat16
expect_errors 8 3
unset EPX_RANKS_PER_NODE
if nvidia-smi -L >/dev/null 2>&1 && ./epx_perf -d cuda --help >/dev/null 2>&1; then
    check_memory -d cuda
    mv "$work/first" "$work/json"
    expect_same host
fi
exit $status
