#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tests/run finds what a run leaves, and nothing else: a process and a name in /dev/shm are planted,
# by themselves and behind mpiexec.
set -u
top=$(cd "${srcdir:-.}" && pwd) || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"; rm -f /dev/shm/epx-*-planted$$' EXIT
mark=planted$$
said=$work/said
status=0

[ -d /proc/self ] && [ -w /dev/shm ] || {
    echo "SKIP: no /proc or no /dev/shm"
    exit 77
}

fail() {
    echo "check_leftovers: $*"
    cat "$said"
    status=1
}

# leave TEXT - a rank that makes a name in /dev/shm, which has TEXT in it.
leave() {
    # shellcheck disable=SC2016 # the inner shell expands
    sh "$top/tests/leftovers" note "$work/ranks" \
        sh -c ': >"/dev/shm/epx-$$-$0" && echo $$ >>"$1"' "$1$$" "$work/made"
}

look() {
    sh "$top/tests/leftovers" check "$mark" "$work/ranks" >"$said" 2>&1
}

: >"$work/ranks"
look || fail "finds something where nothing is"

: >/dev/shm/epx-$$-planted$$
leave planted
look && fail "does not find a name that a rank has left"
grep -q -- "-planted$$" "$said" || fail "does not tell which name"
[ -e /dev/shm/epx-$$-planted$$ ] || fail "removed the name of another process"
[ -e "/dev/shm/epx-$(cat "$work/made")-planted$$" ] && fail "left the name"
look || fail "finds the name once more"

TESTS_MARK=$mark sleep 300 &
look && fail "does not find a process that lives on"
grep -q "process $!: sleep 300" "$said" || fail "does not tell which process"
kill -0 $! 2>/dev/null && sleep 1 && kill -0 $! 2>/dev/null && fail "left the process"

[ -n "$(find tests -type f -name unit_log -perm -u=x)" ] || exit $status # nothing to run

# An mpiexec whose only rank passes, and leaves what LEAVES tells.
cat >"$work/mpiexec" <<'END'
#!/bin/sh
[ "$1" != --version ] || exit 0
while [ "$1" != note ]; do
    program=$1
    shift
done
export program
"$program" note "$2" sh -c '[ "$LEAVES" != name ] || : >"/dev/shm/epx-$$-$0"' "$NAME"
[ "$LEAVES" != process ] || sleep 301 >/dev/null 2>&1 &
echo " No Errors"
END
chmod +x "$work/mpiexec"
for leaves in nothing name process; do
    LEAVES=$leaves NAME=planted$$ MPIEXEC=$work/mpiexec \
        sh "$top/tests/run" tests/unit_log-1.mpi >"$said" 2>&1
    case $leaves,$? in
    nothing,0) ;;
    nothing,*) fail "a run that leaves nothing fails" ;;
    *,0) fail "a run that leaves a $leaves passes" ;;
    *) grep -q '^left: ' "$said" || fail "a run that leaves a $leaves fails, but not for that" ;;
    esac
done
exit $status
