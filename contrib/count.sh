# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# count.sh - runs tests by `make check' and counts them as they end. A script sources this file
# behind steps.sh, which knows the log.
# shellcheck disable=SC2154

# count_words LIST
count_words() {
    # shellcheck disable=SC2086 # a list of words
    set -- $1
    echo $#
}

# check_and_tick FOLDER TESTS - what read_results reads: the lines of make, on a terminal a line for
# every second, and at the end the exit status of make. TEST_JOBS tests run at a time, 2 if unset.
check_and_tick() {
    ticker=
    if [ "$terminal" ]; then
        while kill -0 $$ 2>/dev/null; do
            echo " tick"
            sleep 1
        done &
        ticker=$!
    fi
    code=0
    make -C "$1" -j"${TEST_JOBS:-2}" check TESTS="$2" 2>&1 </dev/null || code=$?
    [ ! "$ticker" ] || kill -s KILL "$ticker" 2>/dev/null || : # as in stop_clock
    echo " code $code"
}

count_line() {
    line="$((passed + skipped + failed)) of $total tests, $failed failed"
    echo "$line, $(passed_since "$begun")"
}

# On a terminal the line of the count is written over itself.
show_count() {
    [ ! "$terminal" ] || printf '\r%-70s' "$(count_line)"
}

# Without a terminal the count is a line of its own after every tenth of the tests.
show_tenth() {
    [ ! "$terminal" ] || return 0
    tenth=$(((passed + skipped + failed) * 10 / total))
    [ "$tenth" -eq "$shown" ] || count_line
    shown=$tenth
}

# show_failure FOLDER LINE - the line of a test that failed, and the end of its own log.
show_failure() {
    [ ! "$terminal" ] || printf '\r%-70s\r' ''
    test=${2#*: }
    first_failed=${first_failed:-$test}
    echo "$2 ($((passed + skipped + failed)) of $total)"
    tail -n 8 "$1/${test%.*}.log" 2>/dev/null | sed 's/^/    /' || :
}

# show_skipped FOLDER - why tests were skipped: each reason with the number of its tests, and the
# log of one of them.
show_skipped() {
    [ "$skipped" -gt 0 ] || return 0
    echo "Skipped:"
    for test in $skipped_tests; do
        log_of_test=$1/${test%.*}.log
        reason=$(sed -n 's/^SKIP: //p; s/^[a-z_]*: skipped, //p' "$log_of_test" 2>/dev/null |
            tail -n 1)
        printf '%s\t%s\n' "$log_of_test" "${reason:-it does not say why}"
    done | awk -F '\t' '
        !num[$2]++ { log_of[$2] = $1 }
        END { for (reason in num) printf "%5d  %s (%s)\n", num[reason], reason, log_of[reason] }
    ' | sort -k 1,1rn -k 2
}

# read_result FOLDER LINE - takes a line of make.
read_result() {
    case $2 in
    PASS:* | XFAIL:*) passed=$((passed + 1)) ;;
    SKIP:*)
        skipped=$((skipped + 1))
        skipped_tests="$skipped_tests ${2#*: }"
        ;;
    FAIL:* | XPASS:* | ERROR:*)
        failed=$((failed + 1))
        show_failure "$1" "$2"
        ;;
    *) return 0 ;;
    esac
    show_tenth
}

# show_verdict FOLDER - the totals, and what to do next.
show_verdict() {
    [ ! "$terminal" ] || printf '\r%-70s\r' ''
    echo "$passed of $total tests passed, $failed failed, $skipped skipped in" \
        "$(passed_since "$begun")"
    show_skipped "$1"
    if [ "$code" -ne 0 ] && [ "$failed" -gt 0 ]; then
        echo "Shown: this build does not pass. $1/${first_failed%.*}.log has the output of the" \
            "first test that failed; it again: make -C $1 check TESTS=$first_failed"
    elif [ "$code" -ne 0 ]; then
        show_end_of_log
        echo "Shown: the tests cannot be run"
    else
        echo "Shown: this build works here. Next: make -C $1 install, and man ./man/epx.7"
    fi
}

read_results() {
    passed=0 skipped=0 failed=0 shown=0 code=99 skipped_tests='' first_failed=''
    begun=$(date +%s)
    while IFS= read -r line; do
        case $line in
        " tick") ;;
        " code "*)
            code=${line#" code "}
            break
            ;;
        *)
            printf '%s\n' "$line" >>"$log"
            read_result "$1" "$line"
            ;;
        esac
        show_count
    done
    show_verdict "$1"
    return "$code"
}

# run_counted FOLDER TESTS - returns the exit status of make.
run_counted() {
    total=$(count_words "$2")
    check_and_tick "$1" "$2" | read_results "$1"
}
