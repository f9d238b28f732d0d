#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A rank of epx_perf, epx_moe or epx_particles is killed at any time: all others end within the
# time-out, and one of them names it. They end, too, if a rank is stopped. These programs have no
# call of MPI that waits and is not watched.
set -u
check=check_killed
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
ranks=3
export EPX_TIMEOUT_MS=2000

# Calls that wait for nobody, and those that are made before there is a communicator.
check_all_watched() {
    for program in epx_perf epx_moe epx_particles; do
        file=.libs/$program
        [ -f "$file" ] || file=$program
        ${NM:-nm} -u "$file" | sed -n 's/.* \(MPI_[A-Za-z_]*\).*/\1/p' | grep -vxE \
            -e 'MPI_(Abort|Init|Wtime|Info_.*|Type_.*|Comm_(rank|size|split_type|free))' \
            -e 'MPI_Comm_set_errhandler' \
            -e 'MPI_(Isend|Send_init|Recv_init|Startall|Ineighbor_alltoallv|Request_free)' \
            -e 'MPI_(Dims_create|Cart_(create|shift)|Dist_graph_create_adjacent)' \
            >"$work/waits"
        [ ! -s "$work/waits" ] || fail "$program waits without a bound in $(cat "$work/waits")"
    done
}

# start COMMAND... - runs it and waits until all ranks have said their process.
start() {
    rm -f "$work"/pid.*
    # shellcheck disable=SC2016,SC2086 # for the shell of a rank; the launcher may have arguments
    WORK=$work timeout -k 5 60 $MPIEXEC --enable-recovery -n $ranks sh -c '
        echo $$ >"$WORK/pid.$OMPI_COMM_WORLD_RANK.new"
        mv "$WORK/pid.$OMPI_COMM_WORLD_RANK.new" "$WORK/pid.$OMPI_COMM_WORLD_RANK"
        exec "$@"' sh "$@" >"$work/said" 2>&1 </dev/null &
    job=$!
    patience=300
    while [ "$(find "$work" -name 'pid.[0-9]' | wc -l)" -lt $ranks ] && [ $patience -gt 0 ]; do
        sleep 0.1
        patience=$((patience - 1))
    done
    [ $patience -gt 0 ] || fail "does not start: $*"
}

# Ranks that still run.
survivors() {
    for file in "$work"/pid.[0-9]; do
        [ "$file" = "$work/pid.$victim" ] || ! kill -0 "$(cat "$file")" 2>/dev/null || echo "$file"
    done
}

# lose SIGNAL VICTIM SECONDS COMMAND... - the rank gets the signal after so many seconds of work.
lose() {
    signal=$1 victim=$2 seconds=$3
    shift 3
    start "$@"
    sleep "$seconds"
    kill -s "$signal" "$(cat "$work/pid.$victim")" || fail "rank $victim was gone before: $*"
    patience=200 # in tenths of a second, of which the time-out takes 20
    while [ "$(survivors)" ] && [ $patience -gt 0 ]; do
        sleep 0.1
        patience=$((patience - 1))
    done
    left=$(survivors)
    # shellcheck disable=SC2046 # a list of processes
    kill -s KILL $(cat "$work"/pid.[0-9]) 2>/dev/null
    wait $job
    [ ! "$left" ] || fail "rank $victim got $signal after $seconds s, and others wait on: $*"
    named="rank $victim (has ended|did not answer)"
    [ "$signal" = KILL ] || named='has waited|did not answer' # one that stopped is like a slow one
    grep -qE "^epx.*: .*$named" "$work/said" ||
        fail "nobody names rank $victim after $signal, $seconds s: $* says $(cat "$work/said")"
}

check_killed() {
    for seconds in 1.1 1.6 2; do
        lose KILL 2 "$seconds" ./epx_perf layer -t 512 -i 1000000 --peer mpi
        lose KILL 1 "$seconds" ./epx_moe --steps 100000 "$srcdir/examples/harbour.txt"
    done
    lose KILL 0 1.3 ./epx_moe --steps 100000 "$srcdir/examples/harbour.txt"
    lose KILL 0 1.7 ./epx_perf dispatch -t 16 -i 10000000 --peer mpi
    lose KILL 1 1.4 ./epx_particles --steps 1000000
    lose STOP 2 1.5 ./epx_particles --steps 1000000
    lose STOP 2 1.5 ./epx_perf layer -t 16 -i 10000000 --peer mpi
}

check_all_watched
case $($MPIEXEC --version 2>&1) in
*"Open MPI"* | *OpenRTE*) ;;
*)
    [ $status -eq 0 ] || exit $status
    skip "$MPIEXEC ends the job when a rank dies"
    ;;
esac
check_killed
exit $status
