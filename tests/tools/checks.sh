# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# checks.sh - what the scripts of this folder share. They name themselves in check, and source this
# file.
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
MPIEXEC=${MPIEXEC:-mpiexec}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
export TERM=dumb
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none

fail() {
    echo "${check:?}: $*" >&2
    # shellcheck disable=SC2034 # the scripts exit with it
    status=1
}

skip() {
    echo "${check:?}: skipped, $*"
    exit 77
}

# expect_line FILE PATTERN - a line of the file is the extended regular expression.
expect_line() {
    grep -qxE -- "$2" "$1" && return
    fail "no line \"$2\" in:"
    cat "$1" >&2
}

# expect_code CODE COMMAND... - what the command prints goes to the files out and err.
expect_code() {
    expected=$1
    shift
    code=0
    "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
    [ "$code" -eq "$expected" ] && return
    fail "code $code, not $expected: $*"
    cat "$work/out" "$work/err" >&2
}

# expect_json FILE EXPRESSION - the JSON in the file makes this Python true, as the name j.
expect_json() {
    python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)' "$1" "$2" || fail "not so in $(cat "$1"): $2"
}

launch() {
    # shellcheck disable=SC2086 # the launcher may have arguments
    timeout 120 $MPIEXEC "$@"
}
