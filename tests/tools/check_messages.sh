#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What is the same on all ranks is told once; a name that is wrong is told with the one that was
# meant; epx_perf lists its sub-commands; epx_info says what auto takes.
set -u
check=check_messages
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
text=$srcdir/examples/harbour.txt

# lines NUMBER PATTERN - so many lines of the last command have the pattern.
lines() {
    number=$(cat "$work/out" "$work/err" | grep -cE -- "$2")
    [ "$number" -eq "$1" ] && return
    fail "$number lines, not $1, have \"$2\" in:"
    cat "$work/out" "$work/err" >&2
}

# fails COMMAND... - it ends with a failure, whichever: launchers have codes of their own.
fails() {
    ! "$@" >"$work/out" 2>"$work/err" </dev/null || fail "no failure: $*"
}

check_once() {
    EPX_TIMEOUT=5 expect_code 0 launch -n 3 ./epx_moe --steps 1 "$text"
    lines 1 'EPX_TIMEOUT is not a hint of EPX, .*; did you mean EPX_TIMEOUT_MS\?$'
    EPX_TRANSPORT=shn fails launch -n 3 ./epx_moe --steps 1 "$text"
    lines 1 '^epx\[0\]: error: .* hint epx_transport is "shn", .*; did you mean shm\?$'
    EPX_TRANSPORT=shm EPX_RANKS_PER_NODE=1 fails launch -n 3 ./epx_moe --steps 1 "$text"
    lines 1 '^epx\[0\]: error: .* transport shm is not usable: '
    EPX_TRANSPORT=mpi EPX_PROGRESS=thread expect_code 0 launch -n 3 ./epx_moe --steps 1 "$text"
    lines 1 'transport mpi is progressed by calls only$'
    fails launch -n 3 ./epx_info --transprts
    lines 1 "unrecognized option '--transprts'|unknown option.* transprts"
    lines 1 '^epx_info: did you mean --transports\?$'
    lines 1 '^usage: epx_info '
    expect_code 0 launch -n 3 ./epx_info --version
    lines 1 '^EPX '
}

check_cmake() {
    EPX_ROOT=/opt/epx EPX_DIR=/opt/epx expect_code 0 launch -n 1 ./epx_moe --steps 1 "$text"
    lines 0 'EPX_(ROOT|DIR)'
}

check_sub_commands() {
    ./epx_perf --help | sed -n '/^sub-commands: /,/^  -/{/^  -/!p;}' | sed 's/^sub-commands://' |
        tr -d '\n' | sed 's/^ *//; s/ \{2,\}/ /g' >"$work/names"
    grep -q '^route, dispatch, .*, layer, neighbor$' "$work/names" ||
        fail "not all in $(cat "$work/names")"
    expect_code 2 ./epx_perf
    lines 1 "^epx_perf: want one sub-command of: $(cat "$work/names")\$"
    expect_code 2 ./epx_perf dispach
    lines 1 "\"dispach\" is no sub-command, there are: $(cat "$work/names"); did you mean dispatch"
    expect_code 2 ./epx_perf dispatch route
    lines 1 '^epx_perf: one sub-command wanted, but "route" follows dispatch$'
}

check_meant() {
    expect_code 2 ./epx_perf dispatch --tokns 3
    lines 1 '^epx_perf: did you mean --tokens\?$'
    expect_code 2 ./epx_perf dispatch --tokens
    lines 0 'did you mean'
    expect_code 2 ./epx_perf dispatch -T flot32
    lines 1 '"flot32" is no datatype, there are: byte, .*, float64; did you mean float32\?$'
    expect_code 2 ./epx_perf dispatch --layout slabs
    lines 1 '"slabs" is no layout, there are: expert, rank, slab; did you mean slab\?$'
    expect_code 2 ./epx_perf dispatch --peer mpy
    lines 1 '"mpy" is no peer, there are: none, mpi, .*; did you mean mpi\?$'
}

check_auto() {
    expect_code 0 launch -n 2 ./epx_info --transports
    lines 1 '^auto takes shm for the memory of hosts, [a-z]+ for the memory of GPUs$'
    EPX_RANKS_PER_NODE=1 expect_code 0 launch -n 2 ./epx_info --json --transports
    cp "$work/out" "$work/json"
    expect_json "$work/json" "j['auto'] == {memory: next((t['name'] for t in j['transports']
        if t['usable'] and t['memory'] == memory), None) for memory in ('system', 'cuda:device')}"
    expect_json "$work/json" "j['auto']['system'] != 'shm'"
}

check_once
check_cmake
check_sub_commands
check_meant
if type python3 >/dev/null 2>&1; then
    check_auto
fi
exit $status
