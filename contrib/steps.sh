# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# steps.sh - how scripts show what they do: one line a step with its time, which counts while the
# step runs if standard output is a terminal. What the commands print goes to a log. Scripts source
# this file, then call start_log.
terminal=
if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then terminal=yes; fi
clock=

# start_log FILE - begins the log, whose name is printed.
start_log() {
    mkdir -p "$(dirname "$1")"
    log=$PWD/$1
    : >"$log"
    echo "What the commands print goes to $log"
    trap stop_clock EXIT
    trap 'stop_clock; exit 130' INT
    trap 'stop_clock; exit 143' TERM
}

# duration SECONDS - as people say it.
duration() {
    if [ "$1" -lt 60 ]; then
        echo "$1 s"
    else
        echo "$(($1 / 60)) min $(($1 % 60)) s"
    fi
}

# passed_since SECONDS - the time since then, which `date +%s' gave.
passed_since() {
    duration $(($(date +%s) - $1))
}

# start_clock WORDS - shows the words, and on a terminal the time that passes, in the current line.
start_clock() {
    begun=$(date +%s)
    clock_words=$1
    printf '%-46s' "$clock_words"
    [ "$terminal" ] || return 0
    while kill -0 $$ 2>/dev/null; do
        printf '\r%-46s%s' "$clock_words" "$(passed_since "$begun")"
        sleep 1
    done &
    clock=$!
}

# A signal that comes before the new shell has dropped the traps of this one would be lost, but for
# KILL.
stop_clock() {
    [ "$clock" ] || return 0
    kill -s KILL "$clock" 2>/dev/null || :
    wait "$clock" 2>/dev/null || :
    clock=
}

# end_clock WORDS - ends the line of start_clock with the time and the words.
end_clock() {
    stop_clock
    [ ! "$terminal" ] || printf '\r%-46s' "$clock_words"
    printf '%s%s\n' "$(passed_since "$begun")" "$1"
}

show_end_of_log() {
    {
        echo "The last lines of $log:"
        tail -n 25 "$log" | sed 's/^/    /'
    } >&2
}

# step WORDS COMMAND... - runs the command, whose output goes to the log; returns its exit status.
# The words say what it does. If it fails the end of the log is shown.
step() {
    start_clock "$1"
    printf '\n== %s\n' "$1" >>"$log"
    shift
    code=0
    "$@" >>"$log" 2>&1 </dev/null || code=$?
    if [ "$code" -eq 0 ]; then
        end_clock ''
        return 0
    fi
    end_clock ', failed'
    show_end_of_log
    return "$code"
}
