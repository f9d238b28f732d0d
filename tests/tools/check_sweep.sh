#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# epx_perf_sweep prints what epx_perf measured, where there is a GPU by graph too, the floor of its
# bytes and the figures it is given, and says what is wrong with them.
set -u
check=check_sweep
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
type python3 >/dev/null 2>&1 || skip "there is no python3"
sweep=$srcdir/tools/epx_perf/epx_perf_sweep

printf '# figures\nother 1 3\nother 4 5\nthird 2 7.5\n' >"$work/figures"
# shellcheck disable=SC2086 # the launcher may have arguments
expect_code 0 timeout 120 "$sweep" -t 1:4 --rate 10 --flag 100 --figures "$work/figures" \
    -o "$work/kept" -- $MPIEXEC -n 2 ./epx_perf route-dispatch -H 256 -i 5
expect_line "$work/out" '# floor: wire bytes at 10\.0 GB/s and 100 us for a flag'
expect_line "$work/out" ' +tokens +floor +graph +calls +kernels +other +third'
expect_line "$work/out" ' +1 +[0-9.]+ +- +[0-9.]+ +- +3\.0 +-'
expect_line "$work/out" ' +4 +[0-9.]+ +- +[0-9.]+ +- +5\.0 +-'
python3 - "$work/out" "$work/kept.calls.json" <<'END' || fail "the table is not what was measured"
import json
import sys

rows = [line.split() for line in open(sys.argv[1]) if line.split()[0].isdigit()]
points = json.load(open(sys.argv[2]))["results"]
assert len(rows) == len(points) == 3
for row, point in zip(rows, points):
    assert int(row[0]) == point["tokens"]
    assert abs(float(row[1]) - (point["wire_bytes"] / 10e3 + 100)) < 0.06
    assert abs(float(row[3]) - point["time_us"]["median"]) < 0.06
END
echo 'other one 3' >"$work/figures"
expect_code 1 "$sweep" --figures "$work/figures" -- true
expect_line "$work/err" "epx_perf_sweep: $work/figures:1: want .*"
expect_code 1 "$sweep" -- false
expect_line "$work/err" 'epx_perf_sweep: epx_perf ended with 1'
expect_code 1 "$sweep" -- /nonexistent
expect_code 2 "$sweep" --speed -- true

has_gpu() {
    grep -q '^#define HAVE_CUDA 1' config.h && nvidia-smi -L 2>/dev/null | grep -q '^GPU '
}

check_gpu() {
    # shellcheck disable=SC2086 # the launcher may have arguments
    EPX_TRANSPORT=ipc expect_code 0 timeout 240 "$sweep" -t 1:4 --rate 10 -o "$work/gpu" -- \
        $MPIEXEC -n 2 ./epx_perf dispatch -d cuda --peer none -e 2 -k 1 -H 256 -i 1 -x 1
    python3 - "$work/out" "$work/gpu" <<'END' || fail "the table of a GPU is not what was measured"
import json
import sys

rows = [line.split() for line in open(sys.argv[1]) if line.split()[0].isdigit()]
calls, graph = (json.load(open(f"{sys.argv[2]}.{how}.json")) for how in ("calls", "graph"))
assert len(rows) == len(calls["results"]) == len(graph["results"]) == 3
for row, called, replayed in zip(rows, calls["results"], graph["results"]):
    assert int(row[0]) == called["tokens"] == replayed["tokens"]
    assert abs(float(row[1]) - called["wire_bytes"] / 10e3) < 0.06
    assert abs(float(row[2]) - replayed["time_us"]["median"]) < 0.06
    assert abs(float(row[3]) - called["time_us"]["median"]) < 0.06
    assert float(row[4]) == replayed["kernels"] >= 1
END
}

! has_gpu || check_gpu
exit $status
