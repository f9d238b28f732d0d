#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# EPX_TRACE gives one JSON of all ranks: each operation with its phases within it, at times that the
# ranks share and that are as long as epx_perf says, and waits; a viewer can show all of it.
# epx_info and epx_perf_plot read it.
set -u
check=check_trace
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
type python3 >/dev/null 2>&1 || skip "there is no python3"

cat >"$work/read.py" <<'END'
"""Reads a trace of 3 ranks and what epx_perf wrote; says what is wrong with them."""
import json
import statistics
import sys

events = json.load(open(sys.argv[1], encoding="utf-8"))["traceEvents"]
run = json.load(open(sys.argv[2], encoding="utf-8"))
names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
assert sorted(names.values()) == ["rank 0", "rank 1", "rank 2"], names


def find_spans():
    """Each beginning with its end. They are in the order of time, and within one another, as
    viewers want it, whose times are double and whose ends are those of what began last."""
    spans, open_by, last_by = [], {}, {}
    for e in events:
        if e["ph"] not in "BEbe":
            continue
        track = e["pid"], e["id2"]["local"] if "id2" in e else e["tid"]
        assert e["ts"] >= last_by.get(track, 0), f"{e} is earlier than the event before it"
        last_by[track] = e["ts"]
        stack = open_by.setdefault(track, [])
        if e["ph"] in "Bb":
            spans.append(e)
            stack.append(e)
            assert e["ph"] == "B" or len(stack) == 1, f"{e}: two waits for one rank at a time"
        else:
            begun = stack.pop()
            begun["dur"] = e["ts"] - begun["ts"]
    assert not any(open_by.values()), "something does not end"
    return spans


assert {e["ph"] for e in events} <= set("MBEbei"), "an event is of a kind that may be left out"
spans = find_spans()


def of(pid, name):
    return [e for e in spans if e["pid"] == pid and e["name"].startswith(name)]


def is_within(inner, outer):
    return (outer["ts"] - 0.01 <= inner["ts"]
            and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 0.01)


operations = {pid: of(pid, "EPX_") for pid in names}
numbers = {tuple(e["args"]["number"] for e in some) for some in operations.values()}
assert len(numbers) == 1 and len(*numbers) > 30, "ranks have other operations"
for pid, some in operations.items():
    assert all(e["args"]["error"] == 0 for e in some)
    for phase in "ready words", "rows":
        parts = of(pid, phase)
        assert len(parts) == len(some), f"{len(parts)} of {phase}"
        assert all(map(is_within, parts, some)), phase
    ends = [e["ts"] + e["dur"] for e in some]
    assert all(e["ts"] >= end - 0.01 for e, end in zip(some[1:], ends)), "they overlap"
# no rank ends an operation before all have called it: its ready words end after all began
for same in zip(*(of(pid, "ready words") for pid in names)):
    begun = max(e["ts"] for e in same)
    assert all(e["ts"] + e["dur"] >= begun - 20 for e in same), same
for e in (e for e in spans if e["name"].startswith("wait for")):
    assert names[e["pid"]] != f"rank {e['args']['rank']}", "a rank waits for itself"
told = [e["args"] for e in events if e.get("name") == "EPX waits"]
for args in told:
    assert len(args["ns"]) == len(args["operations"]) == args["size"] == 3
    assert args["ns"][args["rank"]] == 0
assert {args["rank"] for args in told} == {0, 1, 2}
timed = run["results"][0]["time_us"]["median"]
drawn = statistics.median(e["dur"] for some in operations.values() for e in some)
print(f"median {drawn:.1f} us in the trace, {timed:.1f} us by epx_perf")
assert 0.2 * timed < drawn < 2 * timed
END

# run TRANSPORT - 3 ranks that exchange rows.
run() {
    EPX_TRACE=$work/trace.json EPX_TRANSPORT=$1
    export EPX_TRACE EPX_TRANSPORT
    expect_code 0 launch -n 3 ./epx_perf alltoallv -t 256 -m 1k -i 40 --json "$work/run.json"
    unset EPX_TRACE EPX_TRANSPORT
    python3 "$work/read.py" "$work/trace.json" "$work/run.json" || fail "$1: see above"
}

for transport in shm mpi; do
    run $transport
done
expect_code 0 ./epx_info --waits="$work/trace.json"
grep -q '^Communicator 1 of 3 ranks' "$work/out" || fail "no matrix: $(cat "$work/out")"
[ "$(grep -c '^ *[012] ' "$work/out")" -ge 3 ] || fail "a rank is missing: $(cat "$work/out")"
expect_code 1 ./epx_info --waits="$work/run.json"
grep -q 'there are no waits in it' "$work/err" || fail "$(cat "$work/err")"
expect_code 1 ./epx_info --waits=/nonexistent
# A file of an earlier job is replaced; one that cannot be written is one warning a rank.
cp "$work/trace.json" "$work/first.json"
run shm
[ "$(grep -c process_name "$work/trace.json")" -le "$(grep -c process_name "$work/first.json")" ] ||
    fail "the file of an earlier job was kept"
EPX_TRACE=/nonexistent/trace.json
export EPX_TRACE
expect_code 0 launch -n 1 ./epx_perf alltoallv -t 1 -m 64 -i 3
unset EPX_TRACE
grep -q 'EPX_TRACE: /nonexistent/trace.json' "$work/err" || fail "no warning: $(cat "$work/err")"
for python in /usr/bin/python3 python3; do
    "$python" -c 'import matplotlib' 2>/dev/null && break
done
if "$python" -c 'import matplotlib' 2>/dev/null; then
    export MPLCONFIGDIR="$work"
    expect_code 0 "$python" "$srcdir/tools/epx_perf/epx_perf_plot" -o "$work/waits.svg" \
        "$work/trace.json"
    grep -q 'QuadMesh\|<image' "$work/waits.svg" || fail "no matrix in the picture"
fi
exit "$status"
