#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A program that knows nothing of EPX, examples/petsc/poisson.c, prints the same iterations, norms
# and products with stars of type epx as with basic ones; errors of EPX are errors of PETSc.
set -u
check=check_petsc
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
grep -q '^#define HAVE_PETSC 1' config.h || skip "built without PETSc"
[ -z "${SANITIZER:-}" ] || skip "PETSc itself is not checked"
plugin=$PWD/.libs/libepx_petsc.so
export EPX_LOG=error UCX_NET_DEVICES="${UCX_NET_DEVICES-lo}"

# solve TYPE RANKS OPTIONS... - as a user starts it.
solve() {
    type=$1 ranks=$2
    shift 2
    # shellcheck disable=SC2086 # the launcher may have arguments
    expect_code 0 timeout 120 $MPIEXEC -n "$ranks" tests/petsc/poisson -dll_append "$plugin" \
        -sf_type "$type" "$@"
}

# compare RANKS OPTIONS...
compare() {
    solve basic "$@"
    mv "$work/out" "$work/basic"
    solve epx "$@"
    expect_line "$work/out" '[1-9][0-9]* iterations, residual .*'
    cmp -s "$work/basic" "$work/out" || {
        fail "epx (>) is not as basic (<): $*"
        diff "$work/basic" "$work/out" >&2
    }
}

compare 1 -ksp_type cg
compare 2 -ksp_type cg
compare 4 -ksp_type cg -pc_type jacobi
compare 4 -ksp_type gmres
EPX_TRANSPORT=mpi compare 3 -ksp_type gmres -pc_type asm

# Scatters are stars of the type that was asked for.
solve epx 2 -scatter_view
expect_line "$work/out" ' *type: epx'
expect_line "$work/out" ' *EPX transport=shm'
export EPX_TRANSPORT=none_such
# shellcheck disable=SC2086 # the launcher may have arguments
timeout 120 $MPIEXEC -n 2 tests/petsc/poisson -dll_append "$plugin" -sf_type epx \
    >"$work/out" 2>&1 && fail "a transport that there is not was taken"
grep -q 'PETSC ERROR: EPX error .*none_such' "$work/out" || {
    fail "PETSc does not show the error of EPX:"
    cat "$work/out" >&2
}
exit $status
