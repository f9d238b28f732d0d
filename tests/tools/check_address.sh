#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# epx_info and epx_perf start under torchrun, and wherever RANK, WORLD_SIZE, MASTER_ADDR and
# MASTER_PORT are set, without MPI. Whoever else comes to rank 0 does no harm; ranks that miss one,
# or lose one, end and name it.
set -u
check=check_address
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
type python3 >/dev/null 2>&1 || skip "there is no python3 to read JSON"
for variable in OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK SLURM_PROCID TORCHELASTIC_RUN_ID; do
    unset $variable
done
export MASTER_ADDR=127.0.0.1

# A port with a free one behind it.
choose_port() {
    MASTER_PORT=$(python3 -c 'import socket
while True:
    try:
        first = socket.create_server(("127.0.0.1", 0))
        second = socket.create_server(("127.0.0.1", first.getsockname()[1] + 1))
        break
    except OSError:
        pass
print(first.getsockname()[1])')
    export MASTER_PORT
}

# start RANK COMMAND... - in the background; what it prints goes to files with the rank's name. A
# tool in the build folder is a script of libtool, which becomes the tool.
start() {
    rank=$1
    shift
    RANK=$rank timeout -k 5 100 "$@" >"$work/out.$rank" 2>"$work/err.$rank" </dev/null &
    eval "process$rank=$!"
}

# finish CODE RANK... - the ranks end with this code.
finish() {
    expected=$1
    shift
    for rank; do
        code=0
        eval "wait \$process$rank" || code=$?
        [ "$code" -eq "$expected" ] && continue
        fail "rank $rank: code $code, not $expected"
        cat "$work/out.$rank" "$work/err.$rank" >&2
    done
}

start_all() {
    choose_port
    export WORLD_SIZE=3
    for rank in 0 1 2; do
        start $rank "$@"
    done
}

check_info() {
    start_all ./epx_info --json
    finish 0 0 1 2
    expect_json "$work/out.0" "j['ranks'] == 3 and j['auto']['system'] != 'mpi'"
    expect_json "$work/out.0" "[t['why_not'] for t in j['transports'] if t['name'] == 'mpi']
        == ['the ranks were not started by MPI']"
    [ ! -s "$work/out.1" ] || fail "rank 1 prints, too"
}

check_perf() {
    for verb in dispatch combine alltoallv; do
        start_all ./epx_perf $verb -t 100 -m 1k -i 3 --full --check --json "$work/json"
        finish 0 0 1 2
        expect_line "$work/out.0" '# every row right'
        expect_json "$work/json" "j['ranks'] == 3 and j['nodes'] == 1 and j['ranks_per_node'] == 3"
        expect_json "$work/json" "j['results'][0]['barrier_us']['median'] > 0"
    done
    start_all ./epx_perf dispatch --peer mpi
    finish 2 0 1 2
    grep -q 'MPI did not start these ranks' "$work/err.0" || fail "the peer of MPI is not refused"
}

# Somebody who says what is no greeting, or comes from another job, while rank 0 waits.
check_strangers() {
    choose_port
    export WORLD_SIZE=3
    start 0 ./epx_info --json
    start 1 ./epx_info --json
    python3 -c 'import socket, sys, time
for said in b"", b"GET / HTTP/1.0\r\n\r\n" * 100, b"EPX adr" + b"x" * 100:
    for attempt in range(200):
        try:
            line = socket.create_connection(("127.0.0.1", int(sys.argv[1]) + 1))
            break
        except OSError:
            time.sleep(0.05)
    line.sendall(said)
    line.close()' "$MASTER_PORT" || fail "the port is not open"
    WORLD_SIZE=4 start 3 ./epx_info --json
    finish 1 3
    grep -q 'rank 0 of another job' "$work/err.3" || fail "of another job: $(cat "$work/err.3")"
    start 2 ./epx_info --json
    finish 0 0 1 2
    expect_json "$work/out.0" "j['ranks'] == 3"
}

check_missing() {
    choose_port
    export WORLD_SIZE=3
    EPX_TIMEOUT_MS=1000 start 0 ./epx_info --json
    EPX_TIMEOUT_MS=1000 start 2 ./epx_info --json
    finish 1 0 2
    grep -q '1 of 3 ranks did not come .*, rank 1 is one' "$work/err.0" ||
        fail "rank 1 is not missed: $(cat "$work/err.0")"
    EPX_TIMEOUT_MS=500 start 2 ./epx_info --json
    finish 1 2
    grep -q 'rank 0 is not to be reached' "$work/err.2" || fail "rank 2: $(cat "$work/err.2")"
    RANK=x WORLD_SIZE=3 ./epx_info --json 2>"$work/err" && fail "RANK=x is taken"
    grep -q 'RANK is "x", want 0 to 2' "$work/err" || fail "RANK=x: $(cat "$work/err")"
    python3 -c 'import socket, sys, time
line = socket.create_server(("127.0.0.1", int(sys.argv[1]) + 1))
time.sleep(100)' "$MASTER_PORT" &
    taken=$!
    sleep 0.5
    start 0 ./epx_info --json
    finish 1 0
    kill $taken
    grep -q 'cannot listen at port .*in use' "$work/err.0" || fail "taken: $(cat "$work/err.0")"
}

# The others notice by the closed sockets, long before the time-out of five minutes.
check_killed() {
    start_all ./epx_perf dispatch -t 100 -i 1000000
    sleep 2
    child=$(ps -o pid= --ppid "$process2")
    kill -s KILL ${child:-"$process2"}
    finish 1 0 1
    grep -qE '^epx.*rank 2 ' "$work/err.0" "$work/err.1" ||
        fail "nobody names rank 2: $(cat "$work/err.0" "$work/err.1")"
    wait "$process2" 2>/dev/null
}

check_torchrun() {
    "${PYTHON:-python3}" -c 'import torch.distributed.run' 2>/dev/null || return
    expect_code 0 env -u MASTER_ADDR timeout 100 "${PYTHON:-python3}" -m torch.distributed.run \
        --standalone --nproc-per-node 2 --no-python ./epx_perf dispatch -t 64 -i 3 --check
    expect_line "$work/out" '# every row right'
}

check_info
check_perf
check_strangers
check_missing
check_killed
check_torchrun
exit $status
