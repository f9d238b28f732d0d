#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# epx_perf_plot draws what epx_perf wrote: every curve, its band, the peer by its name, and a title
# with shape and machine; and says what is wrong with a file that is none.
set -u
check=check_plot
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
plot=$srcdir/tools/epx_perf/epx_perf_plot
for python in /usr/bin/python3 python3; do
    "$python" -c 'import matplotlib' 2>/dev/null && break # Debian puts it into the first
done
export MPLCONFIGDIR="$work"

# refused FILE - ends with one line that names the tool.
refused() {
    expect_code 1 "$python" "$plot" -o "$work/none.svg" "$@"
    [ "$(grep -c '^epx_perf_plot: ' "$work/err")" -eq 1 ] || fail "$*: $(cat "$work/err")"
    [ ! -e "$work/none.svg" ] || fail "$*: there is a picture"
}

# count TAG - the elements of the last picture whose id begins so.
count() {
    grep -c "id=\"$1" "$work/picture.svg"
}

type "$python" >/dev/null 2>&1 || skip "there is no python3"
echo '{"results": []}' >"$work/empty"
echo 'tokens' >"$work/text"
refused "$work/empty"
refused "$work/text"
refused /nonexistent
echo '{"command": "layer", "results": [{"tokens": 1}]}' >"$work/part"
refused "$work/part"
echo '{"benchmark": "neighbor", "median_ns": [{"row_bytes": 8}]}' >"$work/part"
refused "$work/part"
expect_code 2 "$python" "$plot" -y speed "$work/text"
[ $status -eq 0 ] || exit $status
"$python" -c 'import matplotlib' 2>/dev/null || skip "there is no matplotlib"

expect_code 0 launch -n 2 ./epx_perf dispatch -t 1:4 -m 64 -i 3 --peer mpi --json "$work/json"
cat >"$work/matplotlibrc" <<'END'
svg.fonttype: none
END
export MATPLOTLIBRC="$work"
expect_code 0 "$python" "$plot" -o "$work/picture.svg" "$work/json"
[ "$(count FillBetween)" -eq 2 ] || [ "$(count PolyCollection)" -eq 2 ] || fail "not 2 bands"
for words in EPX mpi 'dispatch on 2 ranks' 'top-8 of 64 experts' 'rows of 64 bytes' '1 node'; do
    grep -q ">[^<]*$words" "$work/picture.svg" || fail "no \"$words\" in the picture"
done
cp "$work/picture.svg" "$work/first.svg"
cp "$work/json" "$work/first.json"
expect_code 0 "$python" "$plot" -o "$work/picture.svg" "$work/json"
cmp "$work/first.svg" "$work/picture.svg" || fail "one input, two pictures"
expect_code 0 launch -n 2 ./epx_perf dispatch -t 1:4 -m 128 -i 3 --json "$work/long"
expect_code 0 "$python" "$plot" -o "$work/picture.svg" "$work/json" "$work/long" "$work/first.json"
for words in 'rows of 64 bytes, .*/json, by mpi' 'rows of 64 bytes, .*/first.json' \
    'rows of 128 bytes'; do
    grep -q ">$words<" "$work/picture.svg" || fail "no curve \"$words\" in the picture"
done
# shellcheck disable=SC2016 # for the inner shell
expect_code 0 sh -c '"$1" "$2" --what ratio --title "" -o "$3/ratio.png" - <"$3/json"' \
    sh "$python" "$plot" "$work"
[ -s "$work/ratio.png" ] || fail "no picture of standard input"
refused -y ceiling "$work/json"

expect_code 0 launch -n 2 ./epx_perf neighbor -m 8:32 -i 2 -x 1 --batch 2 --json "$work/ways"
expect_code 0 "$python" "$plot" -o "$work/picture.svg" "$work/ways"
for words in 'EPX, persistent' 'EPX, once' mpi-neighbor mpi-ineighbor mpi-persistent \
    'neighbor on 2 ranks, 2 faces, [a-z]*' 'median time of an exchange, us' 'bytes of a row'; do
    grep -q ">$words<" "$work/picture.svg" || fail "no \"$words\" in the picture of neighbours"
done
expect_code 0 "$python" "$plot" -y ratio -o "$work/picture.svg" "$work/ways"
grep -q '>time of the fastest of MPI / time of EPX<' "$work/picture.svg" || fail "no ratio"
refused -y wire "$work/ways"
refused "$work/ways" "$work/json"
exit $status
