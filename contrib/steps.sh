# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# steps.sh - how scripts show what they do: one line a step with its time, which counts while the
# step runs if standard output is a terminal. A step that compiles counts its objects, too. What the
# commands print goes to a log. Scripts source this file, then call start_log.
terminal=
if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then terminal=yes; fi
clock=
objects=0 # that the step compiles

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

# How many objects the step has begun to compile, from the lines that make writes.
count_compiled() {
    tail -n "+$((log_lines + 1))" "$log" | grep -cE '^  (CC|CXX|NVCC) ' || :
}

# On a terminal the line is written over itself every second.
tick_on_terminal() {
    while kill -0 $$ 2>/dev/null; do
        count=
        [ "$objects" -eq 0 ] || count=", $(count_compiled) of $objects objects"
        printf '\r%-46s%s' "$clock_words" "$(passed_since "$begun")$count"
        sleep 1
    done
}

# Without a terminal the count is a line of its own after every tenth of the objects.
tick_by_lines() {
    shown=0
    while kill -0 $$ 2>/dev/null; do
        sleep 1
        count=$(count_compiled)
        tenth=$((count * 10 / objects))
        [ "$tenth" -eq "$shown" ] ||
            echo "    $count of $objects objects, $(passed_since "$begun")"
        shown=$tenth
    done
}

# start_clock WORDS - shows the words, and on a terminal the time that passes, in the current line.
start_clock() {
    begun=$(date +%s)
    clock_words=$1
    log_lines=$(wc -l <"$log")
    if [ "$terminal" ]; then
        tick_on_terminal &
    elif [ "$objects" -gt 0 ]; then
        printf '%s\n' "$clock_words"
        tick_by_lines &
    else
        printf '%-46s' "$clock_words"
        return 0
    fi
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
    count=
    if [ "$objects" -gt 0 ]; then count=", $(count_compiled) of $objects objects"; fi
    if [ "$terminal" ]; then
        printf '\r%-46s' "$clock_words"
    elif [ "$objects" -gt 0 ]; then
        printf '%-46s' "$clock_words"
    fi
    printf '%s%s\n' "$(passed_since "$begun")" "$count$1"
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

# list_objects FOLDER ARGUMENT... - a line for each object that make would compile. The headers that
# configure may have changed are made before, and then taken as they are: `make -n' would believe
# that they change, and count all that depends on them.
list_objects() {
    make -C "$1" config.h tools/configure_line.h >>"$log" 2>&1 </dev/null || :
    dry='make -n -o stamp-h1 -o config.status'
    $dry -C "$@" MAKE="$dry" 2>/dev/null </dev/null | grep -E '^echo "  (CC|CXX|NVCC) ' || :
}

# make_step WORDS FOLDER ARGUMENT... - a step that is `make' in the folder, and counts objects.
make_step() {
    words=$1
    shift
    listed=$(list_objects "$@")
    objects=$(printf '%s' "$listed" | grep -c '' || :)
    kernels=$(printf '%s' "$listed" | grep -c '^echo "  NVCC ' || :)
    [ "$kernels" -eq 0 ] ||
        echo "$kernels of $objects objects are kernels for GPUs, which take some minutes;" \
            "with --without-cuda there are none"
    code=0
    step "$words" make -j"$(nproc)" -C "$@" || code=$?
    objects=0
    return "$code"
}
