#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What quickstart and run-tests show: a line a step, counted tests, failures at once, the end of the
# log of a step that fails, its exit status; control characters on a terminal alone. epx_perf shows
# its progress on a terminal alone.
set -u
check=check_terminal
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$work" || exit 1

# A tree with two steps, of which the second one fails if FAILS is set, and 3 tests.
cat >steps <<END
set -eu
. "$srcdir/contrib/steps.sh"
. "$srcdir/contrib/count.sh"
start_log build/log
step "first step" sh -c 'echo said by the first; sleep \${SECONDS_LONG-0}'
step "second step" sh -c 'echo said by the second; exit \${FAILS-0}'
run_counted tests "a.mpi b.mpi c.sh"
END
mkdir tests
cat >tests/Makefile <<'END'
check:
	@echo "wanted: $(TESTS)"; echo "PASS: a.mpi"; echo "FAIL: b.mpi"; sleep $(SECONDS_LONG)
	@echo "SKIP: c.sh"; exit $(CODE)
END
echo "b went wrong" >tests/b.log
printf 'c: skipped, there is no c\nSKIP c.sh (exit status: 77)\n' >tests/c.log
export SECONDS_LONG=0 CODE=0

has_controls() {
    LC_ALL=C grep -q "[$(printf '\001-\010\013-\037')]" "$1"
}

check_plain() {
    expect_code 2 env CODE=2 sh steps
    ! has_controls out || fail "control characters without a terminal: $(cat -v out)"
    expect_line out 'first step +[0-9]+ s'
    expect_line out 'second step +[0-9]+ s'
    expect_line out 'FAIL: b.mpi \(2 of 3\)'
    expect_line out '    b went wrong'
    expect_line out '1 of 3 tests passed, 1 failed, 1 skipped in [0-9]+ s'
    expect_line out ' +1  there is no c \(tests/c.log\)'
    expect_line out 'Shown: this build does not pass\. tests/b.log has .* TESTS=b.mpi'
    expect_line build/log 'said by the first'
    expect_line build/log 'wanted: a.mpi b.mpi c.sh'
    ! grep -q said out || fail "what a step prints is not kept in the log"
    sed -i 's/echo "FAIL: b.mpi";//' tests/Makefile
    expect_code 2 env CODE=2 sh steps
    expect_line out 'Shown: the tests cannot be run'
}

check_failure() {
    expect_code 7 env FAILS=7 sh steps
    expect_line out 'second step +[0-9]+ s, failed'
    expect_line err '    said by the second'
    ! grep -q 'of 3 tests' out || fail "tests ran behind a step that failed"
}

# on_terminal FILE COMMAND - its exit status is that of the command.
on_terminal() {
    SHELL=/bin/sh TERM=xterm timeout 120 script -qec "$2" /dev/null >"$1" </dev/null
}

check_counting() {
    SECONDS_LONG=6 CODE=2 on_terminal shown 'sh steps'
    [ $? -eq 2 ] || fail "another exit status on a terminal"
    tr '\r' '\n' <shown | sed 's/ *$//' >lines
    expect_line lines 'first step +[1-5] s' # a busy machine leaves out some of these seconds
    expect_line lines 'first step +([6-9]|[1-9][0-9]) s'
    expect_line lines '[12] of 3 tests, 0 failed, [1-5] s'
    expect_line lines '1 of 3 tests passed, 0 failed, 1 skipped in [0-9]+ s'
    TERM=dumb script -qec 'TERM=dumb sh steps' /dev/null >shown </dev/null
    tr -d '\r' <shown >plain
    ! has_controls plain || fail "control characters on a dumb terminal"
}

# A step may end before the clock that runs beside it has begun.
check_quick_steps() {
    # shellcheck disable=SC2016 # for the script
    sed 's/^step "second.*/for i in $(seq 200); do step "quick step" true; done/' steps >quick
    on_terminal shown 'sh quick' || fail "quick steps do not end"
    tr '\r' '\n' <shown | sed 's/ *$//' >lines
    expect_line lines '1 of 3 tests passed, 0 failed, 1 skipped in [0-9]+ s'
}

check_scripts() {
    for name in quickstart run-tests; do
        expect_code 0 sh "$srcdir/contrib/$name" --help
        expect_line out "usage: contrib/$name .*"
    done
    expect_code 2 sh "$srcdir/contrib/quickstart" /nonexistent/text
    expect_line err 'quickstart: cannot read /nonexistent/text'
}

# Long enough for a line of progress: the library's own tests are in tests/testlist.
check_perf() {
    command="$MPIEXEC -n 2 $top_builddir/epx_perf dispatch -t 256 -i 1000000"
    SHELL=/bin/sh TERM=xterm timeout 60 script -qec "timeout --foreground 8 $command >table" \
        /dev/null >shown </dev/null
    tr '\r' '\n' <shown >lines
    ! has_controls table || fail "control characters in a file: $(cat -v table)"
    case $($MPIEXEC --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) ;;
    *) return 0 ;; # its ranks have no terminal
    esac
    grep -qE 'point 1 of 1 \(256 tokens, 8192 B\), iteration [0-9]+ of 1000003, [0-9]+ s' lines ||
        fail "no progress: $(cat -v lines)"
}

check_plain
check_failure
check_scripts
script --version 2>/dev/null | grep -q util-linux || {
    [ $status -eq 0 ] || exit $status
    skip "there is no script of util-linux to make a terminal"
}
check_counting
check_quick_steps
check_perf
exit $status
