#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# epx_info, epx_perf and epx_moe explain themselves; their JSON is JSON and says what their text
# says; epx_perf warns; epx_moe says what the loss is and why it stops.
set -u
check=check_output
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
type python3 >/dev/null 2>&1 || skip "there is no python3 to read JSON"

# Every long option that the usage of a tool names is in its page, and the other way round.
check_page() {
    grep -oE -e '--[a-z][a-z-]+' "$work/out" | sort -u >"$work/usage"
    sed 's/\\-/-/g; s/\\f[BIPR]//g' "$srcdir/man/$1.1" | sed -n '/^\.SH OPTIONS/,/^\.SH "*EX/p' |
        grep -E '^\.(B|BI) ' | grep -oE -e '--[a-z][a-z-]+' | sort -u >"$work/page"
    diff "$work/usage" "$work/page" >&2 || fail "options of $1 --help (<) and its page (>) differ"
}

check_help() {
    for tool in epx_info epx_perf epx_moe; do
        expect_code 0 "./$tool" --help
        check_page $tool
    done
    expect_code 2 ./epx_info --jsn
    expect_code 2 ./epx_perf --explains
    expect_code 1 ./epx_moe --step
    expect_code 1 ./epx_moe --steps -1 "$srcdir/examples/harbour.txt"
    expect_line "$work/err" 'epx_moe: --steps cannot be "-1", see epx_moe --help'
}

check_info() {
    ranks=2
    expect_code 0 launch -n $ranks ./epx_info --json
    cp "$work/out" "$work/json"
    expect_json "$work/json" "j['ranks'] == $ranks and len(j['hints']) > 5"
    expect_code 0 launch -n $ranks ./epx_info --transports
    usable=$(grep -cE '^    (usable|.*: usable)$' "$work/out")
    expect_json "$work/json" "sum(t['usable'] for t in j['transports']) == $usable"
    expect_json "$work/json" "all((t['why_not'] is None) == t['usable'] for t in j['transports'])"
    expect_json "$work/json" "len({(t['name'], t['memory'], t['way']) for t in j['transports']})
        == len(j['transports'])"
    expect_json "$work/json" "[t['way'] for t in j['transports'] if t['ways'] == 2] == [1, 2]"
    expect_line "$work/out" '    way 2 of 2 of ucx, which takes the first usable one: .*'
    expect_code 0 env EPX_TIMEOUT_MS=1234 ./epx_info --json --hints
    expect_json "$work/out" "[h['now'] for h in j['hints'] if h['from_environment']] == ['1234']"
    expect_json "$work/out" "'transports' not in j"
    expect_code 1 env EPX_LOG=loud ./epx_info --json --hints
    [ ! -s "$work/out" ] || fail "JSON in spite of a wrong hint: $(cat "$work/out")"
}

check_perf() {
    expect_code 0 launch -n 2 ./epx_perf dispatch -t 1k -m 1k:2k -i 2 --peer mpi --json -
    expect_json "$work/out" "[(r['tokens'], r['row_bytes']) for r in j['results']]
        == [(1024, 1024), (1024, 2048)]"
    expect_json "$work/out" "j['processor'] and j['nodes'] == 1 and j['ranks_per_node'] == 2"
    expect_json "$work/out" "'-m 1k:2k' in j['arguments'] and j['date'].endswith('Z')"
    expect_line "$work/err" '# +tokens +row +median .*'
    expect_line "$work/err" ' +1024 +2048 .*'
    expect_code 0 launch -n 2 ./epx_perf dispatch -t 1 -i 2 --peer mpi --full --check
    columns=$(sed -n 's/^# *\(tokens .*\)/\1/p' "$work/out")
    [ "$columns" ] || fail "no columns in $(cat "$work/out")"
    expect_code 0 ./epx_perf --explain
    for column in $columns; do
        grep -qE "^$column|^[a-z]*, $column" "$work/out" || fail "--explain lacks $column"
    done
}

# The first CPU that this script may use.
first=$(taskset -cp $$ 2>/dev/null | sed -n 's/.*: *\([0-9]*\).*/\1/p')

# More ranks than CPUs, for one rank may be bound to one CPU.
check_warnings() {
    for command in "epx_perf route -t 1 -i 1" "epx_particles -s 1" \
        "epx_moe --steps 1 $srcdir/examples/harbour.txt"; do
        # shellcheck disable=SC2086 # a command
        expect_code 0 launch -n 2 taskset -c "$first" ./$command
        expect_line "$work/err" 'epx\[0\]: warning: 2 ranks share 1 CPU: .*'
        [ "$(grep -c ' share ' "$work/err")" -eq 1 ] || fail "warns twice: $(cat "$work/err")"
        # shellcheck disable=SC2086
        expect_code 0 launch -n 1 ./$command
        ! grep -q ' share ' "$work/err" || fail "one rank shares CPUs: $(cat "$work/err")"
    done
}

# Four loops disturb the CPU most of the time, so that few iterations are fast.
disturb() {
    while :; do
        # shellcheck disable=SC2034 # i counts
        for i in 1 2 3 4; do
            timeout 2 taskset -c "$first" sh -c 'while :; do :; done' &
        done
        wait
        sleep 0.3
    done
}

# The warning counts the points whose minimum is far under the median.
check_noise() {
    disturb &
    expect_code 0 launch -n 1 taskset -c "$first" ./epx_perf dispatch -t 2k:4k -m 4k -i 40 \
        --json "$work/json"
    kill $!
    noisy=$(sed -n 's/^# warning: min .* median at \([12]\) of 2 points, .*/\1/p' "$work/out")
    expect_json "$work/json" "sum(r['time_us']['min'] < r['time_us']['median'] / 2
        for r in j['results']) == ${noisy:-0}"
}

check_moe() {
    yes "the tide comes in and the tide goes out" | head -n 100 >"$work/text"
    expect_code 0 launch -n 1 ./epx_moe --rate 0.05 --tokens 50 "$work/text"
    [ "$(grep -cE '^step +[0-9]+ of 16: loss +[0-9.]+, +[0-9]+%, after [0-9.]+ s$' "$work/out")" \
        -eq 16 ] || fail "not 16 steps: $(cat "$work/out")"
    expect_line "$work/out" 'loss: how far the layer.s guess is from the next token, .*'
    expect_line "$work/out" 'stopped after 16 steps, the most without --steps; .* --steps 18'
    expect_code 0 launch -n 1 ./epx_moe --steps 2 --rate 0.05 --tokens 50 "$work/text"
    expect_line "$work/out" 'stopped after the 2 steps of --steps; .* --steps 18'
    expect_code 0 launch -n 1 ./epx_moe --tokens 5000 "$work/text"
    expect_line "$work/out" 'stopped at the end of the text, .* --steps 1'
    expect_code 1 launch -n 1 ./epx_moe --rate 100 --tokens 50 "$work/text"
    expect_line "$work/out" '800 tokens in 16 steps, .*: the steps were too large, .* --rate'
}

check_help
check_info
check_perf
if [ "$first" ]; then
    check_warnings
    check_noise
fi
check_moe
exit $status
