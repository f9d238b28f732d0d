#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The messages that epx_trouble(7) shows are those that the library writes, and it shows all that
# trouble.c brings about. Above a display that no run brings about a comment of the page says why.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
name=check_trouble
page=$srcdir/man/epx_trouble.7
trouble=$top_builddir/tests/pages/trouble
status=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"

# Messages of rank 0, one a line; values that each run or machine has of its own become N.
messages() {
    grep -e '^epx: ' -e '^epx\[0\]: ' |
        sed -e 's/0x[0-9a-f]*/N/g' \
            -e 's/[0-9]* bytes of shared memory: [0-9]* are/N bytes of shared memory: N are/' \
            -e 's/transport [a-z]* is used instead/transport N is used instead/' \
            -e 's/, of [0-9]* that the machine has/, of N that the machine has/' \
            -e 's/[0-9]* ranks share [0-9]* CPUs*:/N ranks share N CPUs:/' | sort -u
}

# displays WHICH - the displays of the page, each without its line breaks: those that are made, or
# all.
displays() {
    awk -v which="$1" '
        /^\.EE/ { if (on && text != "") print text; on = 0 }
        on {
            if (sub(/^  /, "") && text != "") text = text " " $0
            else { if (text != "") print text; text = $0 }
        }
        /^\.EX/ { on = which == "all" || last !~ /^\.\\" /; text = "" }
        { last = $0 }' "$page" |
        sed -e 's/\\-/-/g' -e "s/\\\\(aq/'/g" -e 's/\\&//g' | messages
}

# run CASE [SETTING...] - what the library writes when a case runs on 2 ranks.
run() {
    case_name=$1
    shift
    # shellcheck disable=SC2086 # the launcher may have arguments
    ASAN_OPTIONS=detect_leaks=0 launch $MPIEXEC -n 2 env "$@" "$trouble" "$case_name" 2>&1
}

# run_small TRANSPORT - under a small /dev/shm, of which MPI takes nothing; nothing runs where there
# is no right to mount one, or where MPI is not Open MPI.
run_small() {
    mount='mount -t tmpfs -o size=65536 tmpfs /dev/shm'
    $MPIEXEC --version 2>&1 | grep -qE 'OpenRTE|Open MPI' || return
    unshare -m sh -c "$mount" >/dev/null 2>&1 || return
    echo "exec unshare -m sh -c '$mount && exec $MPIEXEC \"\$@\"' sh \"\$@\"" >"$work/small"
    (
        export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_osc=^sm,rdma,ucx
        export OMPI_MCA_btl_vader_backing_directory="$work"
        export OMPI_MCA_shmem_mmap_backing_file_base_dir="$work"
        MPIEXEC="sh $work/small"
        run transport EPX_TRANSPORT="$1"
    )
}

# The transport is named where the case is about it: others may lack what they need here.
run_all() {
    run hints EPX_TRANSPORT=auto
    run usual EPX_TRANSPORT=shm
    run late EPX_TRANSPORT=shm EPX_WARN_MS=500
    run leftovers EPX_TRANSPORT=shm
    run transport EPX_TRANSPORT=shm EPX_RANKS_PER_NODE=1
    run transport EPX_TRANSPORT=shm EPX_MEMORY=cuda:device
    run transport EPX_TRANSPORT=mpi EPX_PROGRESS=thread
    run transport EPX_TRANSPORT=mpi EPX_TRANSPRT=mpi
    run fatal EPX_TRANSPORT=auto
    run_small shm
    run_small auto
    if ! grep -q '^#define HAVE_CUDA 1' "$top_builddir/config.h"; then
        run transport EPX_TRANSPORT=lsa
        run transport EPX_MEMORY=cuda:device
    fi
}

[ -z "${SANITIZER:-}" ] || skip "handles that were freed are not for the sanitizers"
use_build
[ -x "$trouble" ] || die "$trouble is not built"
run_all >"$work/written"
messages <"$work/written" >"$work/made"
displays made >"$work/promised"
displays all >"$work/shown"
[ -s "$work/promised" ] || die "no messages found in $page"
comm -13 "$work/made" "$work/promised" >"$work/not_made"
comm -23 "$work/made" "$work/shown" >"$work/not_shown"
if [ -s "$work/not_made" ]; then
    sed "s|^|$name: nothing writes what the page shows: |" "$work/not_made" >&2
    status=1
fi
if [ -s "$work/not_shown" ]; then
    sed "s|^|$name: the page does not show: |" "$work/not_shown" >&2
    status=1
fi
exit $status
